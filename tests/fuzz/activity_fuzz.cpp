#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "ir/trace_io.h"
#include "tracer/from_activities.h"

// An activity log is refused with words or converted into a lawful trace, the same however little
// memory there is to sort in.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace superneurons;
  const auto fail = [](const char* why, const std::string& what) {
    std::fprintf(stderr, "activity log: %s: %s\n", why, what.c_str());
    std::abort();
  };
  const ActivityInput input{.text = {reinterpret_cast<const char*>(data), size}, .name = "fuzz"};
  for (const char* window : {"", "whole", "range:step"}) {
    const auto made = trace_from_activities(input, "fuzz", {.window = window, .range_depth = 1});
    if (!made) {
      if (made.error().message.empty()) fail("an error lacks words", window);
      continue;
    }
    const std::string text = format_trace(made->trace);
    if (const auto fault = find_fault(made->trace)) fail("an unlawful trace", fault->message);
    if (!parse_trace(text, "fuzz")) fail("a trace that cannot be read back", text);
    if (made->remarks.empty() || made->remarks.front().empty()) fail("no word on the window", text);
  }
  return 0;
}
