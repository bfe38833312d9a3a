#include "policies/segments.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace superneurons {
namespace {

constexpr std::uint32_t kNone = 0xffffffff;
constexpr std::size_t kMostLinks = 64;  // ops looked at behind one drop

/// A set of tensors that is cleared by starting the next one.
class TensorSet {
 public:
  explicit TensorSet(std::size_t tensors) : marks_(tensors, 0) {}
  void clear() { ++now_; }
  bool has(TensorId tensor) const { return marks_[tensor.index] == now_; }
  /// True if it was not in the set.
  bool add(TensorId tensor) { return std::exchange(marks_[tensor.index], now_) != now_; }

 private:
  std::vector<std::uint32_t> marks_;
  std::uint32_t now_ = 1;
};

class Finder {
 public:
  Finder(const PolicyContext& context, const Plan& plan, std::span<const Idle> drops,
         const std::vector<bool>& may_rerun, LayerPeak measure)
      : context_(context),
        trace_(context.trace),
        plan_(plan),
        drops_(drops),
        may_rerun_(may_rerun),
        measure_(measure),
        touches_(context, plan),
        managed_(managed(trace_)),
        drops_of_(trace_.tensors.size(), kNone),
        next_drop_(drops.size(), kNone),
        parent_(drops.size()),
        seen_(trace_.ops.size(), kNone),
        held_(plan.steps.size()),
        ours_(trace_.tensors.size()),
        operands_(trace_.tensors.size()) {
    std::iota(parent_.begin(), parent_.end(), 0U);
    for (std::uint32_t i = 0; i < drops.size(); ++i)
      next_drop_[i] = std::exchange(drops_of_[drops[i].tensor.index], i);
  }

  Segments run() && {
    for (std::uint32_t i = 0; i < drops_.size(); ++i) trace_back(i);
    number_segments();
    for (std::uint32_t i = 0; i < drops_.size(); ++i) collect_uses(i);
    weigh_segments();
    out_.layer_peak = layer_peak();
    return std::move(out_);
  }

 private:
  struct Source {
    std::uint32_t drop;  // later its segment
    TensorId tensor;
  };
  struct Use {
    std::uint32_t segment, step, drop;
  };

  static std::vector<bool> managed(const Trace& trace) {
    std::vector<bool> result;
    for (const Tensor& tensor : trace.tensors)
      result.push_back(tensor.role == Role::activation || tensor.role == Role::saved ||
                       tensor.role == Role::temporary || tensor.role == Role::activation_gradient);
    for (const Carry& carry : trace.carry)
      result[carry.start.index] = result[carry.end.index] = false;
    return result;
  }

  Bytes bytes(TensorId tensor) const { return managed_[tensor.index] ? trace_[tensor].bytes : 0_B; }

  std::uint32_t drop_of(const Value& value) const {
    std::uint32_t i = drops_of_[value.tensor.index];
    while (i != kNone && drops_[i].version != value.version) i = next_drop_[i];
    return i;
  }

  std::uint32_t root(std::uint32_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }

  /// Joins a drop with the drops it is made from, through values that are gone without being
  /// dropped, and finds what is there to start from.
  void trace_back(std::uint32_t drop) {
    const Idle& idle = drops_[drop];
    std::vector<Value> wanted{{idle.tensor, idle.version}};
    for (std::size_t i = 0; i < wanted.size() && i < kMostLinks; ++i) {
      const OpId maker = context_.flow[wanted[i].tensor].makers[wanted[i].version - 1];
      if (std::exchange(seen_[maker.index], drop) == drop) continue;
      for (const Value& need : context_.flow[maker].rerun_needs) {
        if (!managed_[need.tensor.index]) continue;
        if (const std::uint32_t other = drop_of(need); other != kNone)
          parent_[root(drop)] = root(other);
        else if (is_gone(need, idle.after)) wanted.push_back(need);
        else sources_.push_back({drop, need.tensor});
      }
    }
  }

  /// Whether the value must itself be made again to be read before plan step `at`.
  bool is_gone(const Value& value, std::uint32_t at) const {
    const std::vector<OpId>& makers = context_.flow[value.tensor].makers;
    if (value.version == 0 || !may_rerun_[makers[value.version - 1].index]) return false;
    if (value.version < makers.size() && makers[value.version].index < plan_.steps[at].subject)
      return true;  // overwritten
    bool gone = false;
    for (const Touch& touch : touches_[value.tensor]) {
      if (touch.step >= at) break;
      if (touch.kind == StepKind::offload) return false;
      gone = touch.kind == StepKind::free;
    }
    return gone;
  }

  void number_segments() {
    std::vector<std::uint32_t> number(drops_.size(), kNone);
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < drops_.size(); ++i) {
      std::uint32_t& of = number[root(i)];
      if (of == kNone) of = count++;
      out_.of.push_back(of);
    }
    out_.live.resize(count);
    for (Source& source : sources_) source.drop = out_.of[source.drop];
    std::stable_sort(sources_.begin(), sources_.end(),
                     [](const Source& a, const Source& b) { return a.drop < b.drop; });
  }

  void collect_uses(std::uint32_t drop) {
    const Idle& idle = drops_[drop];
    const std::span<const Touch> touches = touches_[idle.tensor];
    auto touch =
        std::lower_bound(touches.begin(), touches.end(), idle.after,
                         [](const Touch& at, std::uint32_t step) { return at.step < step; });
    for (; touch != touches.end() && touch->kind == StepKind::run && touch->needs; ++touch) {
      uses_.push_back({out_.of[drop], touch->step, drop});
      if (touch->makes) break;  // overwritten
    }
  }

  /// From the last use of each segment to its first, adding what is still needed.
  void weigh_segments() {
    std::stable_sort(uses_.begin(), uses_.end(), [](const Use& a, const Use& b) {
      return a.segment != b.segment ? a.segment < b.segment : a.step > b.step;
    });
    std::vector<char> counted(drops_.size(), 0);
    auto source = sources_.begin();
    for (auto use = uses_.begin(); use != uses_.end();) {
      const std::uint32_t segment = use->segment;
      const auto end =
          std::find_if(use, uses_.end(), [&](const Use& next) { return next.segment != segment; });
      ours_.clear();
      for (auto member = use; member != end; ++member) ours_.add(drops_[member->drop].tensor);
      const auto first_source = source;
      Bytes live{};
      for (; source != sources_.end() && source->drop == segment; ++source)
        if (ours_.add(source->tensor)) live += bytes(source->tensor);
      const std::span<const Source> sources(first_source, source);
      while (use != end) {
        const std::uint32_t step = use->step;
        for (; use != end && use->step == step; ++use)
          if (!std::exchange(counted[use->drop], char{1})) live += bytes(drops_[use->drop].tensor);
        out_.live[segment] = std::max(out_.live[segment], live + others(step, sources));
      }
    }
  }

  /// What else the op of this step needs; takes note of the sources that it does not read.
  Bytes others(std::uint32_t step, std::span<const Source> sources) {
    const Op& op = trace_[plan_.steps[step].op()];
    Bytes sum = op.choices[plan_.steps[step].choice].workspace;
    operands_.clear();
    for (const std::vector<Access>* accesses : {&op.reads, &op.writes})
      for (const Access& access : *accesses)
        if (operands_.add(access.tensor) && !ours_.has(access.tensor)) sum += bytes(access.tensor);
    for (const Source& source : sources)
      if (operands_.add(source.tensor)) held_[step] += bytes(source.tensor);
    return sum;
  }

  Bytes layer_peak() {
    Bytes peak{};
    for (std::uint32_t i = 0; i < plan_.steps.size(); ++i) {
      if (plan_.steps[i].kind != StepKind::run) continue;
      const Op& op = trace_[plan_.steps[i].op()];
      Bytes sum = op.choices[plan_.steps[i].choice].workspace;
      if (measure_ == LayerPeak::held) sum += held_[i];
      operands_.clear();
      for (const std::vector<Access>* accesses : {&op.reads, &op.writes}) {
        for (const Access& access : *accesses)
          if (operands_.add(access.tensor)) sum += bytes(access.tensor);
        if (measure_ == LayerPeak::aliased) operands_.clear();
      }
      peak = std::max(peak, sum);
    }
    return peak;
  }

  const PolicyContext& context_;
  const Trace& trace_;
  const Plan& plan_;
  std::span<const Idle> drops_;
  const std::vector<bool>& may_rerun_;
  LayerPeak measure_;
  Touches touches_;
  std::vector<bool> managed_;             // by tensor
  std::vector<std::uint32_t> drops_of_;   // by tensor: one of its drops
  std::vector<std::uint32_t> next_drop_;  // by drop: another one of the same tensor
  std::vector<std::uint32_t> parent_;     // by drop: towards the one that stands for its segment
  std::vector<std::uint32_t> seen_;       // by op: the drop that was last traced back through it
  std::vector<Bytes> held_;               // by plan step: sources that its op does not read
  std::vector<Source> sources_;
  std::vector<Use> uses_;
  TensorSet ours_;      // the segment's values and sources
  TensorSet operands_;  // of one op
  Segments out_;
};

}  // namespace

Segments find_segments(const PolicyContext& context, const Plan& plan, std::span<const Idle> drops,
                       const std::vector<bool>& may_rerun, LayerPeak measure) {
  return Finder(context, plan, drops, may_rerun, measure).run();
}

}  // namespace superneurons
