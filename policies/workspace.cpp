// Dynamic convolution workspaces (SuperNeurons, PPoPP 2018, section 3.5): functional tensors come
// first; of what they leave, each op with several measured choices gets the workspace of its
// fastest choice that fits, forward and backward separately. All runs of an op take one choice, so
// that the least room over its runs counts, reruns included.
//
// A workspace lives only while its op runs, and what it is taken out of is whole again afterwards.
// So rooms of different ops do not compete, the fastest choice for each is the best for all, and
// one placement tells all rooms. Where an allocator's offsets depend on more than what is resident,
// rooms are estimates: all of them shrink together until the plan places.
//
// Before passes that move tensors, `grant=alone` sets a goal: what would fit beside the op's own
// operands and what never leaves. `grant=least` asks for least.
#include <algorithm>
#include <charconv>
#include <optional>

#include "ir/files.h"
#include "policies/grant.h"
#include "policies/options.h"
#include "policies/passes.h"

namespace superneurons {
namespace {

struct Options {
  enum class Grant { room, alone, least };
  Grant grant = Grant::room;
  std::int64_t percent = 100;  // of the budget
  ChoiceRule rule;
};

Result<std::int64_t> parse_percent(const std::string& text) {
  std::int64_t percent = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, percent);
  if (error == std::errc() && percent >= 0 && percent <= 100 && std::string_view(stop, end) == "%")
    return percent;
  return bad_option("workspace", "of", text, "a percentage up to 100%");
}

Result<Options> parse(const PolicyContext& context) {
  const Result<std::string> grant =
      one_of(context, "workspace", "grant", {"room", "alone", "least"});
  if (!grant) return grant.error();
  const Result<std::int64_t> percent = parse_percent(context.options.at("of"));
  if (!percent) return percent.error();
  const Result<std::string> deterministic =
      one_of(context, "workspace", "deterministic", {"yes", "no"});
  if (!deterministic) return deterministic.error();
  const Result<std::string> math = one_of(context, "workspace", "math", {"recorded", "any"});
  if (!math) return math.error();
  Options options;
  options.grant = *grant == "room"    ? Options::Grant::room
                  : *grant == "alone" ? Options::Grant::alone
                                      : Options::Grant::least;
  options.percent = *percent;
  options.rule.any_order = *deterministic == "no";
  options.rule.any_math = *math == "any";
  if (context.options.at("limit") == "none") return options;
  const Result<Bytes> limit = parse_bytes(context.options.at("limit"));
  if (!limit)
    return bad_option("workspace", "limit", context.options.at("limit"),
                      "none or a size such as 64MiB");
  options.rule.limit = *limit;
  return options;
}

Bytes share(Bytes bytes, std::int64_t percent) {
  return {static_cast<std::int64_t>(static_cast<__int128>(bytes.count) * percent / 100)};
}

}  // namespace

Result<Plan> workspace(const PolicyContext& context, const Plan& incoming) {
  const Result<Options> options = parse(context);
  if (!options) return options.error();
  switch (options->grant) {
    case Options::Grant::least:
      return grant_least(context, incoming, options->rule);
    case Options::Grant::alone:
      return grant_alone(context, incoming, options->rule,
                         share(context.budget.device, options->percent));
    case Options::Grant::room:
      break;
  }
  return grant_what_is_left(context, incoming, options->rule);
}

}  // namespace superneurons
