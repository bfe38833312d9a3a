// Layer graphs of networks, described in C++ and lowered to traces without a run.
//
//     Network net = image_network("tiny", {3, 32, 32}, 10);
//     LayerId x = convolution(net, net.data(), {.channels = 16, .kernel = 3, .pad = 1});
//     x = relu(net, x);
//     softmax_cross_entropy(net, linear(net, x, {.features = 10}));
//     Result<Trace> trace = lower(net, {.batch = 8});
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/device_profile.h"
#include "ir/result.h"
#include "ir/trace.h"

namespace superneurons {

enum class LayerKind : std::uint8_t {  // what a layer computes: networks/operations.md
  data,
  convolution,
  linear,
  relu,
  max_pool,
  average_pool,
  lrn,
  batch_norm,
  dropout,
  add,
  concat,
  softmax_cross_entropy
};

using LayerId = Id<struct LayerTable>;

/// Channels, height, width of one image; linear layers use {features, 1, 1}.
struct Shape {
  std::int64_t channels = 1, height = 1, width = 1;
  std::int64_t count() const { return channels * height * width; }
};

/// Of a window or of its padding. One number stands for both: `.kernel = 3`, `.kernel = {1, 7}`.
struct Extent {
  std::int64_t height = 0, width = 0;

  constexpr Extent() = default;
  constexpr Extent(std::int64_t both) : height(both), width(both) {}  // NOLINT: meant to convert
  constexpr Extent(std::int64_t of_height, std::int64_t of_width)
      : height(of_height), width(of_width) {}
  constexpr bool square() const { return height == width; }
};

struct Layer {  // a node of the graph; fields that its kind has no use for keep their defaults
  LayerKind kind = LayerKind::data;
  std::string name;  // unique, "conv1", "stage2/block3/conv1"
  std::vector<LayerId> inputs;
  Shape shape;    // of its output
  Extent kernel;  // of pooling: square
  std::int64_t stride = 1;
  Extent pad;         // on either side; of pooling: square
  bool bias = false;  // convolution, linear
  double rate = 0;    // dropout
};

struct Network {  // a graph of layers, added one by one by the functions below
  std::string name;
  std::int64_t classes = 0;
  std::vector<Layer> layers;  // layers[0] is data; inputs always precede their users

  LayerId data() const { return {0}; }
  const Layer& operator[](LayerId id) const { return layers[id.index]; }
};

struct ConvolutionOptions {
  std::int64_t channels;
  Extent kernel;
  std::int64_t stride = 1;
  Extent pad = {};
  bool bias = true;
};
struct PoolOptions {
  std::int64_t kernel, stride = 1, pad = 0;
};
struct LinearOptions {
  std::int64_t features;
  bool bias = true;
};

Network image_network(std::string name, Shape image, std::int64_t classes);  // data alone
/// Names default to kind + number of the layer. A layer that does not fit is reported by lower().
LayerId convolution(Network& net, LayerId in, const ConvolutionOptions& options,
                    std::string name = "");
LayerId linear(Network& net, LayerId in, const LinearOptions& options, std::string name = "");
LayerId relu(Network& net, LayerId in, std::string name = "");
LayerId max_pool(Network& net, LayerId in, const PoolOptions& options, std::string name = "");
LayerId average_pool(Network& net, LayerId in, const PoolOptions& options, std::string name = "");
LayerId lrn(Network& net, LayerId in, std::string name = "");
LayerId batch_norm(Network& net, LayerId in, std::string name = "");
LayerId dropout(Network& net, LayerId in, double rate, std::string name = "");
LayerId add(Network& net, std::vector<LayerId> in, std::string name = "");
LayerId concat(Network& net, std::vector<LayerId> in, std::string name = "");
LayerId softmax_cross_entropy(Network& net, LayerId in, std::string name = "");

/// How layers become ops. native: what a good runtime does. paper: what the paper's runtime did, so
/// that its printed figures come out of the same code (input gradient of the first layer, fork
/// copies, fused convolution backward; reference: SuperNeurons PPoPP 2018 and its release). The
/// others model which tensors other frameworks make and share (networks/lowering_style.h): they are
/// models of documented strategies, not those programs.
enum class Lowering : std::uint8_t { native, paper, caffe, torch, mxnet, tensorflow };

struct LoweringEntry {
  Lowering lowering;
  std::string_view name;  // "native" ...
  std::string_view summary;
};
std::span<const LoweringEntry> lowerings();
/// Unknown: bad_usage that lists them.
Result<Lowering> find_lowering(std::string_view name);
std::string_view name_of(Lowering lowering);

/// Order in which layers run. declared: as they were added to the network, backward the other way
/// round. route: depth-first, as the paper has it (networks/route.h). release: the same with the
/// first branch of each layer last, as its released code enters them. usual: route for the paper's
/// lowering, declared for all others.
enum class LayerOrder : std::uint8_t { usual, declared, route, release };
inline constexpr std::array<std::string_view, 4> kLayerOrderNames = {"usual", "declared", "route",
                                                                     "release"};

/// When each parameter is updated. end: all after backward. arrive: as soon as its gradient is
/// complete and no op needs its old value, in backward, so that no two gradients need to live at
/// once and the state of the optimizer is idle for the rest of the training step. The arithmetic is
/// the same.
enum class Updates : std::uint8_t { end, arrive };
inline constexpr std::array<std::string_view, 2> kUpdatesNames = {"end", "arrive"};

struct LoweringOptions {  // images per training step, how layers become ops, the numbers of SGD
  std::int64_t batch = 1;
  Lowering lowering = Lowering::native;
  Updates updates = Updates::end;
  LayerOrder order = LayerOrder::usual;
  bool tf32 = false;
  double rate = 0.01, momentum = 0.9, weight_decay = 1e-4;
};

/// Forward, backward and update ops with FLOPs and bytes, one choice each, ns 0 and device "".
/// Op kinds and operands: networks/operations.md. Error bad_input if shapes do not fit or overflow.
Result<Trace> lower(const Network& net, const LoweringOptions& options);

/// Fills ns of every choice from the roofline of the profile (networks/roofline.h); capability
/// durations becomes `inferred`, `origin` names the profile, and `device` stays empty, as nothing
/// was measured on any.
void estimate_durations(Trace& trace, const DeviceProfile& profile);

struct NetworkEntry {
  std::string_view name;  // "alexnet", "resnet50", "small_cnn"
  std::string_view summary;
  std::int64_t default_batch;
  Network (*make)();
};
std::span<const NetworkEntry> networks();

/// By registry name or "resnet:n1,n2,n3,n4" (depth 3(n1+n2+n3+n4)+2, bottlenecks). Unknown:
/// bad_usage with "did you mean".
Result<Network> find_network(std::string_view name);
Network resnet(std::int64_t n1, std::int64_t n2, std::int64_t n3, std::int64_t n4);

}  // namespace superneurons
