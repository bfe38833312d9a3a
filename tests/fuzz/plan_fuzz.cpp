#include <cstddef>
#include <cstdint>

#include "tests/fuzz/text_laws.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace superneurons;
  hold_text_laws<Plan>({reinterpret_cast<const char*>(data), size}, parse_plan, format_plan);
  return 0;
}
