#include <cstddef>
#include <cstdint>

#include "tests/fuzz/text_laws.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace superneurons;
  hold_text_laws<DeviceProfile>({reinterpret_cast<const char*>(data), size}, parse_profile,
                                format_profile);
  return 0;
}
