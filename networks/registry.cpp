#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "networks/models.h"
#include "networks/network.h"

namespace superneurons {
namespace {

/// `name`: what the literature calls it, which is not always its depth.
template <int name, std::int64_t N1, std::int64_t N2, std::int64_t N3, std::int64_t N4>
Network named_resnet() {
  Network net = resnet(N1, N2, N3, N4);
  net.name = fmt::format("resnet{}", name);
  return net;
}

constexpr NetworkEntry kNetworks[] = {
    {"alexnet", "AlexNet, 227x227, without groups", 128, alexnet},
    {"vgg16", "VGG configuration D, 227x227", 64, vgg16},
    {"vgg19", "VGG configuration E, 227x227", 64, vgg19},
    {"resnet50", "ResNet of bottlenecks 3,4,6,3, 227x227", 64, named_resnet<50, 3, 4, 6, 3>},
    {"resnet101", "ResNet of bottlenecks 3,4,23,3, 227x227", 32, named_resnet<101, 3, 4, 23, 3>},
    {"resnet152", "ResNet of bottlenecks 3,8,36,3, 227x227", 32, named_resnet<152, 3, 8, 36, 3>},
    {"resnet256", "SuperNeurons' ResNet of bottlenecks 3,16,62,3 (depth 254), 227x227", 16,
     named_resnet<256, 3, 16, 62, 3>},
    {"resnet512", "SuperNeurons' ResNet of bottlenecks 6,32,124,6 (depth 506), 227x227", 16,
     named_resnet<512, 6, 32, 124, 6>},
    {"resnet1024", "SuperNeurons' ResNet of bottlenecks 12,64,248,12 (depth 1010), 227x227", 16,
     named_resnet<1024, 12, 64, 248, 12>},
    {"resnet1922", "ResNet of bottlenecks 6,32,596,6 (depth 1922, SuperNeurons' deepest), 227x227",
     16, named_resnet<1922, 6, 32, 596, 6>},
    {"resnet2500", "SuperNeurons' ResNet of bottlenecks 6,32,788,6 (depth 2498), 227x227", 16,
     named_resnet<2500, 6, 32, 788, 6>},
    {"inception_v4", "Inception v4 with batch norm, 299x299", 32, inception_v4},
    {"densenet121", "DenseNet-121 (dense blocks of 6,12,24,16), 224x224", 32, densenet121},
    {"small_cnn", "every kind of layer once, 32x32, for CPUs", 4, small_cnn},
    {"digits_resnet", "ResNet of 8 layers on handwritten digits, 8x8, for CPUs", 64, digits_resnet},
};

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

Error unknown(std::string_view name) {
  const std::string_view shown = name.substr(0, 64);
  const auto* nearest = std::min_element(
      std::begin(kNetworks), std::end(kNetworks), [&](const auto& a, const auto& b) {
        return edit_distance(shown, a.name) < edit_distance(shown, b.name);
      });
  return {ErrorCode::bad_usage,
          fmt::format("no network {} (did you mean {}?)", shown, nearest->name)};
}

/// "n1,n2,n3,n4", each at least 1 and a million blocks at most.
Result<Network> parse_resnet(std::string_view name, std::string_view numbers) {
  std::array<std::int64_t, 4> blocks{};
  const char* at = numbers.data();
  const char* const end = at + numbers.size();
  bool good = true;
  for (std::size_t i = 0; i < blocks.size() && good; ++i) {
    const auto [next, failure] = std::from_chars(at, end, blocks[i]);
    const bool last = i + 1 == blocks.size();
    good = failure == std::errc{} && blocks[i] >= 1 && blocks[i] <= 1'000'000 &&
           (last ? next == end : next != end && *next == ',');
    at = next + (last ? 0 : 1);
  }
  if (!good || std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0}) > 1'000'000)
    return Error{ErrorCode::bad_usage,
                 fmt::format("network {} (resnet:n1,n2,n3,n4, each at least 1, a million in all)",
                             name.substr(0, 64))};
  return resnet(blocks[0], blocks[1], blocks[2], blocks[3]);
}

}  // namespace

std::span<const NetworkEntry> networks() { return kNetworks; }

Result<Network> find_network(std::string_view name) {
  constexpr std::string_view kResnet = "resnet:";
  if (name.starts_with(kResnet)) return parse_resnet(name, name.substr(kResnet.size()));
  for (const NetworkEntry& entry : kNetworks)
    if (entry.name == name) return entry.make();
  return unknown(name);
}

}  // namespace superneurons
