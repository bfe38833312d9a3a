#include "networks/route.h"

#include <algorithm>
#include <numeric>

namespace superneurons {

std::vector<std::uint32_t> route(const Edges& successors, std::uint32_t first) {
  std::vector<std::uint32_t> missing(successors.size(), 0);  // predecessors not yet in the route
  for (const auto& next : successors)
    for (const std::uint32_t node : next) ++missing[node];

  struct Visit {
    std::uint32_t node;
    std::size_t next = 0;  // successor to enter next
  };
  std::vector<std::uint32_t> result = {first};
  std::vector<Visit> stack = {{first}};
  while (!stack.empty()) {
    Visit& visit = stack.back();
    if (visit.next == successors[visit.node].size()) {
      stack.pop_back();
      continue;
    }
    const std::uint32_t node = successors[visit.node][visit.next++];
    if (--missing[node] > 0) continue;
    result.push_back(node);
    stack.push_back({node});
  }
  return result;
}

Edges reversed(const Edges& edges) {
  Edges result(edges.size());
  for (std::uint32_t i = 0; i < edges.size(); ++i)
    for (const std::uint32_t node : edges[i]) result[node].push_back(i);
  return result;
}

Edges inputs(const Network& net) {
  Edges result(net.layers.size());
  for (std::size_t i = 0; i < net.layers.size(); ++i)
    for (const LayerId input : net.layers[i].inputs) result[i].push_back(input.index);
  return result;
}

Edges readers(const Network& net) { return reversed(inputs(net)); }

Edges first_last(Edges edges) {
  for (auto& next : edges)
    if (next.size() > 1) std::rotate(next.begin(), next.begin() + 1, next.end());
  return edges;
}

LayerOrders layer_orders(const Network& net, LayerOrder order) {
  LayerOrders orders;
  if (order == LayerOrder::route || order == LayerOrder::release) {
    const bool rotated = order == LayerOrder::release;
    const Edges back = rotated ? first_last(inputs(net)) : inputs(net);
    const Edges on = rotated ? first_last(readers(net)) : readers(net);
    std::uint32_t loss = 0;
    while (net.layers[loss].kind != LayerKind::softmax_cross_entropy) ++loss;
    orders.forward = route(on, 0);
    orders.backward = route(back, loss);
  } else {
    orders.forward.resize(net.layers.size());
    std::iota(orders.forward.begin(), orders.forward.end(), 0U);
    orders.backward.assign(orders.forward.rbegin(), orders.forward.rend());
  }
  return orders;
}

}  // namespace superneurons
