// Sizes, times and names as people write them (declared in ir/files.h).
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>

#include "ir/files.h"

namespace superneurons {
namespace {

struct Unit {
  std::string_view suffix;
  int shift;
};
constexpr Unit kUnits[] = {{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}, {"", 0}};

/// Three digits at least, and no trailing zeros after the point: 5.43, 886.2, 12.
std::string short_number(double number) {
  std::string text = fmt::format("{:.{}f}", number, number < 100 ? 2 : 1);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

/// Levenshtein distance.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, diagonal + (a[i] == b[j] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

namespace {

/// "did you mean 12GiB, or 11.18GiB (12 GB)? " for a decimal unit or one cut short, else "".
/// Decimal units are not taken: whoever writes GB may mean either, and 7 % of a GPU is a lot.
std::string meant_binary(std::string_view digits, std::string_view unit) {
  unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
  double number = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (code != std::errc{} || end != digits.data() + digits.size() || unit.empty()) return "";
  const auto letter = static_cast<char>(std::toupper(static_cast<unsigned char>(unit[0])));
  const bool decimal = unit.size() == 2 && std::toupper(static_cast<unsigned char>(unit[1])) == 'B';
  const auto power = std::string_view("KMGT").find(letter);
  if (power == std::string_view::npos || (unit.size() > 1 && !decimal)) return "";
  std::string text = fmt::format("did you mean {}{}iB", digits, letter);
  if (decimal) {
    const double share = std::pow(1000.0 / 1024.0, static_cast<double>(power + 1));
    text +=
        fmt::format(", or {}{}iB ({} {}B)", short_number(number * share), letter, digits, letter);
  }
  return text + "? ";
}

}  // namespace

Result<Bytes> parse_bytes(std::string_view text) {
  const auto digits = text.substr(0, text.find_first_not_of("0123456789."));
  const Error error{
      ErrorCode::bad_usage,
      fmt::format("\"{}\" is no size ({}would be like 12GiB, 1.5GiB, 800MiB, 512KiB or "
                  "4096)",
                  text.substr(0, 60),
                  meant_binary(digits.substr(0, 30), text.substr(digits.size())))};
  const auto unit = std::find_if(std::begin(kUnits), std::end(kUnits), [&](const Unit& candidate) {
    return candidate.suffix == text.substr(digits.size());
  });
  if (digits.empty() || unit == std::end(kUnits)) return error;
  std::int64_t whole = 0;
  const auto end = digits.data() + digits.size();
  if (const auto [last, code] = std::from_chars(digits.data(), end, whole);
      code == std::errc{} && last == end) {
    if (whole > INT64_MAX >> unit->shift) return error;
    return Bytes{whole << unit->shift};
  }
  double number = 0;
  const auto [last, code] = std::from_chars(digits.data(), end, number);
  if (code != std::errc{} || last != end || unit->shift == 0) return error;
  number *= static_cast<double>(std::int64_t{1} << unit->shift);
  if (number >= 9.2e18) return error;
  return Bytes{static_cast<std::int64_t>(number)};
}

std::string format_bytes(Bytes bytes) {
  const auto magnitude = static_cast<double>(bytes.count);
  for (const Unit& unit : kUnits) {
    const auto size = static_cast<double>(std::int64_t{1} << unit.shift);
    if (unit.shift > 0 && std::abs(magnitude) >= size)
      return fmt::format("{} {}", short_number(magnitude / size), unit.suffix);
  }
  return fmt::format("{} B", bytes.count);
}

std::string format_time(Nanoseconds ns) {
  const auto number = static_cast<double>(ns.count);
  const double magnitude = std::abs(number);
  if (magnitude >= 1e9) return fmt::format("{} s", short_number(number / 1e9));
  if (magnitude >= 1e6) return fmt::format("{} ms", short_number(number / 1e6));
  if (magnitude >= 1e3) return fmt::format("{} us", short_number(number / 1e3));
  return fmt::format("{} ns", ns.count);
}

std::string nearest_name(std::string_view wanted, const std::vector<std::string>& names) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, wanted.size() / 3) + 1;
  wanted = wanted.substr(0, 200);
  for (const std::string& name : names) {
    const std::size_t one = distance(wanted, name);
    if (one >= best_distance) continue;
    best_distance = one;
    best = name;
  }
  return best;
}

}  // namespace superneurons
