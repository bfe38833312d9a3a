// find_fault with the record that is at fault, so that a reader can name its line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ir/trace.h"

namespace superneurons {

struct Fault {
  enum class Record : std::uint8_t { header, tensor, op, carry };
  Record record = Record::header;
  std::uint32_t index = 0;
  std::string message;
};
std::optional<Fault> locate_fault(const Trace& trace);

}  // namespace superneurons
