// What `layers=` of offload names.
#pragma once

#include <string_view>
#include <vector>

#include "ir/trace.h"

namespace superneurons {

/// By op, whether its outputs move; empty: those of all ops do. `layers`: conv; conv_linear, and
/// attention and recurrent ops of other programs; checkpoints, which adds the paper's other ones:
/// forks, joins, concatenations; all; auto: conv_linear on traces of our networks, all on others,
/// whose memory is not where the paper's networks have it.
std::vector<bool> offload_layers(const Trace& trace, std::string_view layers);

}  // namespace superneurons
