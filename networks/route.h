// Orders of the layers: SuperNeurons (PPoPP 2018), algorithm 1.
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

}  // namespace superneurons
