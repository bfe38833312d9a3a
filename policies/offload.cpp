// Offload: the unified tensor pool of SuperNeurons (PPoPP 2018, section 3.3.1). Outputs of
// convolution and FC layers leave for the host after their last forward use and come back ahead of
// their first backward use. Copies go out as soon as the value is made, in the shadow of the ops
// that still read it. The paper's figure 10b shows look-ahead of three layer steps
// (lookahead=3layers) and frees right after the last forward use (free=early); by default the
// predicted copies decide both.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "policies/mover.h"
#include "policies/options.h"
#include "policies/passes.h"
#include "policies/rewrite.h"

namespace superneurons {
namespace {

struct Options {
  bool everything = false;  // any layer, not only convolution and FC
  bool need_all = false;
  Bytes least{};
  std::vector<Timing> timings;  // the gentlest first
};

Result<Lookahead> parse_lookahead(const std::string& text) {
  if (text == "auto") return Lookahead{};
  Lookahead lookahead{Lookahead::Unit::ops, 0};
  const char* end = text.data() + text.size();
  if (text.ends_with("layers")) {
    lookahead.unit = Lookahead::Unit::layer_steps;
    end -= 6;
  }
  const auto [stop, error] = std::from_chars(text.data(), end, lookahead.count);
  if (error == std::errc() && stop == end) return lookahead;
  return bad_option("offload", "lookahead", text, "auto, a number of ops, or 3layers");
}

bool from_heavy_layer(const PolicyContext& context, const Idle& idle) {
  const std::vector<OpId>& makers = context.flow[idle.tensor].makers;
  return std::any_of(makers.begin(), makers.begin() + idle.version, [&](OpId op) {
    const std::string& kind = context.trace[op].kind;
    return kind == "Conv2dForward" || kind == "LinearForward";
  });
}

Result<Options> parse(const PolicyContext& context) {
  const Result<std::string> layers =
      one_of(context, "offload", "layers", {"auto", "conv_linear", "all"});
  const Result<std::string> need = one_of(context, "offload", "need", {"budget", "all"});
  const Result<std::string> free = one_of(context, "offload", "free", {"auto", "late", "early"});
  const Result<Bytes> least = bytes_of(context, "offload", "min");
  const Result<Lookahead> lookahead = parse_lookahead(context.options.at("lookahead"));
  for (const Error* error : {layers ? nullptr : &layers.error(), need ? nullptr : &need.error(),
                             free ? nullptr : &free.error(), least ? nullptr : &least.error(),
                             lookahead ? nullptr : &lookahead.error()})
    if (error != nullptr) return *error;
  Options options{*layers == "all", *need == "all", *least, {}};
  if (*layers == "auto")
    options.everything = std::none_of(
        context.trace.ops.begin(), context.trace.ops.end(),
        [](const Op& op) { return op.kind == "Conv2dForward" || op.kind == "LinearForward"; });
  if (*free != "early") options.timings.push_back({true, *lookahead});
  if (*free != "late") options.timings.push_back({false, *lookahead});
  if (*free == "auto" && lookahead->unit == Lookahead::Unit::copy)
    options.timings.push_back({false, {Lookahead::Unit::ops, 0}});
  return options;
}

}  // namespace

Result<Plan> offload(const PolicyContext& context, const Plan& incoming) {
  const Result<Options> options = parse(context);
  if (!options) return options.error();
  if (!options->need_all && fits(context, incoming)) return incoming;
  const auto wanted = [&](const Idle& idle) {
    return context.trace[idle.tensor].bytes >= options->least &&
           (options->everything || from_heavy_layer(context, idle));
  };
  const Mover mover(context, incoming, wanted);
  for (const Timing& timing : options->timings) {
    const auto build = [&](std::size_t count) { return mover.move(count, timing); };
    Plan plan = build(mover.count());
    if (!fits(context, plan)) continue;
    if (options->need_all) return plan;
    return build(fewest_that_fit(context, mover.count(), build));
  }
  return smaller_of(context, mover.move(mover.count(), options->timings.back()), incoming);
}

}  // namespace superneurons
