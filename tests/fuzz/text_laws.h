// What must hold of any text given to a reader: an Error with words, or a value whose canonical
// text reads back as itself. Aborts otherwise. Shared by the fuzz targets and the mutation test.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ir/plan_io.h"
#include "ir/profile_io.h"
#include "ir/trace_io.h"

namespace superneurons {

/// Returns whether the text was accepted.
template <class Value>
bool hold_text_laws(std::string_view text,
                    Result<Value> (*parse)(std::string_view, const std::string&),
                    std::string (*format)(const Value&)) {
  const auto fail = [](const std::string& why) {
    std::fprintf(stderr, "text laws: %s\n", why.c_str());
    std::abort();
  };
  const Result<Value> value = parse(text, "fuzz");
  if (!value) {
    if (value.error().message.empty() || value.error().file != "fuzz") fail("an error lacks words");
    return false;
  }
  const std::string canonical = format(*value);
  const Result<Value> again = parse(canonical, "again");
  if (!again) fail("the canonical text is refused: " + again.error().message);
  if (format(*again) != canonical) fail("the canonical text is not stable:\n" + canonical);
  return true;
}

}  // namespace superneurons
