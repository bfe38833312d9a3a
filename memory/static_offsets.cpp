#include "memory/static_offsets.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <optional>

#include "memory/heap.h"
#include "memory/lowest_gap.h"

namespace superneurons {
namespace {

/// How many placed lifetimes all greedy orders together may look at: some tenths of a second. A
/// count and not a clock, so that offsets are the same everywhere.
constexpr std::int64_t kWork = 200'000'000;

struct Packing {
  std::vector<Bytes> offsets;
  Bytes peak{};
};

/// Takes and gives back, in order of time; at one time what ends goes before what begins.
struct Moment {
  std::uint32_t time = 0;
  bool begins = false;
  std::uint32_t lifetime = 0;
  friend auto operator<=>(const Moment&, const Moment&) = default;
};

std::vector<Moment> moments_of(std::span<const Lifetime> lifetimes) {
  std::vector<Moment> moments;
  moments.reserve(2 * lifetimes.size());
  for (std::uint32_t i = 0; i < lifetimes.size(); ++i) {
    moments.push_back({lifetimes[i].from, true, i});
    moments.push_back({lifetimes[i].to, false, i});
  }
  std::sort(moments.begin(), moments.end());
  return moments;
}

Packing pack_in_time(std::span<const Lifetime> lifetimes, const std::vector<Moment>& moments,
                     HoleOrder order) {
  Heap heap(kEndless, order, 1_B);
  Packing packing{std::vector<Bytes>(lifetimes.size()), {}};
  for (const Moment& moment : moments) {
    Bytes& offset = packing.offsets[moment.lifetime];
    if (moment.begins) offset = heap.allocate(lifetimes[moment.lifetime].size).value_or(kEndless);
    else heap.free(offset);
  }
  packing.peak = heap.high_water();
  return packing;
}

/// Places in the given order, each in its lowest gap. Nothing if the peak would reach `bound` or
/// the work is used up.
std::optional<Packing> pack_in_order(std::span<const Lifetime> lifetimes,
                                     const std::vector<std::uint32_t>& order, Bytes bound,
                                     std::int64_t& work) {
  LowestGap placed;
  Packing packing{std::vector<Bytes>(lifetimes.size()), {}};
  for (const std::uint32_t i : order) {
    const Bytes offset = placed.place(lifetimes[i], work);
    packing.offsets[i] = offset;
    packing.peak = std::max(packing.peak, offset + lifetimes[i].size);
    if (packing.peak >= bound || work <= 0) return std::nullopt;
  }
  return packing;
}

/// Bytes alive from each moment until the next.
std::vector<Bytes> load_of(std::span<const Lifetime> lifetimes,
                           const std::vector<Moment>& moments) {
  std::vector<Bytes> load;
  load.reserve(moments.size());
  Bytes alive{};
  for (const Moment& moment : moments) {
    const Bytes size = lifetimes[moment.lifetime].size;
    load.push_back(alive += moment.begins ? size : 0_B - size);
  }
  return load;
}

/// The highest load during each lifetime, by a table of maxima over powers of two.
std::vector<Bytes> busiest_of(std::span<const Lifetime> lifetimes,
                              const std::vector<Moment>& moments, std::vector<Bytes> load) {
  std::vector<std::uint32_t> begins(lifetimes.size());
  std::vector<std::uint32_t> ends(lifetimes.size());
  for (std::uint32_t i = 0; i < moments.size(); ++i)
    (moments[i].begins ? begins : ends)[moments[i].lifetime] = i;
  std::vector<std::vector<Bytes>> maxima = {std::move(load)};
  for (std::size_t width = 1; 2 * width <= moments.size(); width *= 2) {
    const std::vector<Bytes>& half = maxima.back();
    std::vector<Bytes> full(moments.size() - 2 * width + 1);
    for (std::size_t i = 0; i < full.size(); ++i) full[i] = std::max(half[i], half[i + width]);
    maxima.push_back(std::move(full));
  }
  std::vector<Bytes> busiest(lifetimes.size());
  for (std::uint32_t i = 0; i < lifetimes.size(); ++i) {
    const auto level = std::bit_width(std::max(ends[i] - begins[i], 1U)) - 1;  // never empty
    const std::vector<Bytes>& row = maxima[level];
    busiest[i] = std::max(row[begins[i]], row[ends[i] - (std::size_t{1} << level)]);
  }
  return busiest;
}

/// Orders of lifetimes, the most promising first. Ties: larger, longer, earlier.
class Orders {
 public:
  Orders(std::span<const Lifetime> lifetimes, std::vector<Bytes> busiest)
      : lifetimes_(lifetimes), busiest_(std::move(busiest)) {}
  static constexpr int kCount = 4;

  std::vector<std::uint32_t> order(int which) const {
    std::vector<std::uint32_t> order(lifetimes_.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      if (weight(which, a) != weight(which, b)) return weight(which, a) > weight(which, b);
      if (lifetimes_[a].size != lifetimes_[b].size) return lifetimes_[a].size > lifetimes_[b].size;
      return duration(a) > duration(b);
    });
    return order;
  }

 private:
  std::uint32_t duration(std::uint32_t i) const { return lifetimes_[i].to - lifetimes_[i].from; }

  double weight(int which, std::uint32_t i) const {
    const auto size = static_cast<double>(lifetimes_[i].size.count);
    switch (which) {
      case 0:
        return size;
      case 1:
        return size * duration(i);
      case 2:
        return static_cast<double>(busiest_[i].count);
      default:
        return duration(i);
    }
  }

  std::span<const Lifetime> lifetimes_;
  std::vector<Bytes> busiest_;
};

class Planned final : public Allocator {
 public:
  Planned(Bytes capacity, std::vector<Bytes> offsets)
      : capacity_{std::max<std::int64_t>(capacity.count, 0) / kAllocationUnit.count *
                  kAllocationUnit.count},
        offsets_(std::move(offsets)) {}

  std::optional<Bytes> allocate(Bytes size) override {
    if (next_ == offsets_.size()) return std::nullopt;
    const Bytes offset = offsets_[next_++];
    return reserve(offset, size) ? std::optional(offset) : std::nullopt;
  }

  bool reserve(Bytes offset, Bytes size) override {
    if (size <= 0_B || size > capacity_ || offset < 0_B || offset > capacity_) return false;
    if (offset.count % kAllocationUnit.count != 0) return false;
    const Bytes end = offset + rounded(size);
    const auto after = taken_.lower_bound(offset);
    if (end > (after == taken_.end() ? capacity_ : after->first)) return false;
    if (after != taken_.begin() && std::prev(after)->second > offset) return false;
    taken_.emplace_hint(after, offset, end);
    high_water_ = std::max(high_water_, end);
    return true;
  }

  void free(Bytes offset) override { taken_.erase(offset); }

  Bytes largest_hole() const override {
    Bytes largest{}, from{};
    for (const auto& [offset, end] : taken_) {
      largest = std::max(largest, offset - from);
      from = end;
    }
    return std::max(largest, capacity_ - from);
  }

  Bytes rounded(Bytes size) const override { return round_up(size, kAllocationUnit); }
  Bytes high_water() const override { return high_water_; }

 private:
  Bytes capacity_;
  std::map<Bytes, Bytes> taken_;  // offset to end
  Bytes high_water_{};
  std::vector<Bytes> offsets_;
  std::size_t next_ = 0;
};

}  // namespace

std::vector<Bytes> plan_offsets(std::span<const Lifetime> lifetimes) {
  if (lifetimes.empty()) return {};
  const std::vector<Moment> moments = moments_of(lifetimes);
  std::vector<Bytes> load = load_of(lifetimes, moments);
  const Bytes least = *std::max_element(load.begin(), load.end());
  Packing best = pack_in_time(lifetimes, moments, HoleOrder::lowest);
  Packing other = pack_in_time(lifetimes, moments, HoleOrder::smallest);
  if (other.peak < best.peak) best = std::move(other);
  if (best.peak == least) return best.offsets;
  const Orders orders(lifetimes, busiest_of(lifetimes, moments, std::move(load)));
  std::int64_t work = kWork;
  for (int which = 0; which < Orders::kCount && best.peak > least && work > 0; ++which) {
    if (auto packing = pack_in_order(lifetimes, orders.order(which), best.peak, work))
      best = std::move(*packing);
  }
  return best.offsets;
}

std::unique_ptr<Allocator> make_planned(Bytes capacity, std::vector<Bytes> offsets) {
  return std::make_unique<Planned>(capacity, std::move(offsets));
}

}  // namespace superneurons
