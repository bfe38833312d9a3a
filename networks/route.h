// Orders of the layers: SuperNeurons (PPoPP 2018), algorithm 1, and our own.
#pragma once

#include <cstdint>
#include <vector>

#include "networks/network.h"

namespace superneurons {

/// Edges of a graph, in order: nodes[i] lists the successors of i.
using Edges = std::vector<std::vector<std::uint32_t>>;

/// Depth-first from `first`; a node is entered once all its predecessors are in the route. Linear,
/// no recursion. Nodes that `first` does not reach are not in the route.
std::vector<std::uint32_t> route(const Edges& successors, std::uint32_t first);

/// The same edges the other way round, in the order in which the nodes list them.
Edges reversed(const Edges& edges);

/// Readers of every layer's output, one entry per use.
Edges readers(const Network& net);

/// Inputs of every layer.
Edges inputs(const Network& net);

/// Each node's first edge last: the order in which the released code of SuperNeurons enters the
/// branches of a layer.
Edges first_last(Edges edges);

/// All layers, data too, in the order in which they run.
struct LayerOrders {
  std::vector<std::uint32_t> forward;
  std::vector<std::uint32_t> backward;
};
/// Forward and backward routes are constructed each on its own, as in the release: the one from the
/// data layer over readers, the other from the loss over inputs, so that neither mirrors the other
/// where branches meet. `route` enters branches as they are listed, `release` as the released code
/// does. The network must have no fault; `usual` is declared here.
LayerOrders layer_orders(const Network& net, LayerOrder order);

}  // namespace superneurons
