#include <cstddef>
#include <cstdint>

#include "tests/fuzz/text_laws.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace superneurons;
  hold_text_laws<Trace>({reinterpret_cast<const char*>(data), size}, parse_trace, format_trace);
  return 0;
}
