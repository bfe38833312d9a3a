#include "policies/cache_walk.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "ir/files.h"
#include "memory/heap.h"
#include "policies/cache_arena.h"
#include "policies/cache_needs.h"
#include "policies/rewrite.h"

namespace superneurons {
namespace {

constexpr std::uint32_t kNever = 0xffffffff;

class Walk {
 public:
  Walk(const PolicyContext& context, const Plan& plan, const CacheOptions& options)
      : context_(context),
        trace_(context.trace),
        plan_(plan),
        options_(options),
        touches_(context, plan),
        freedom_(freedoms(context.trace, plan)),
        tensors_(context.trace.tensors.size()),
        device_(*find_allocator(plan.allocator), options.capacity),
        host_(context.budget.host, HoleOrder::lowest),
        edits_(plan.steps.size()) {}

  CacheResult run() && {
    take_homes();
    const std::vector<bool> rerun = reruns(trace_, plan_);
    for (at_ = 0; at_ < plan_.steps.size() && !stopped(context_); ++at_) {
      const PlanStep& step = plan_.steps[at_];
      if (step.kind == StepKind::run) run_op(step, rerun[at_]);
      else move(step);
    }
    return {std::move(edits_).apply(plan_), overflowed_};
  }

 private:
  using Order = std::set<std::pair<std::int64_t, std::uint32_t>>;

  Cached& at(TensorId tensor) { return tensors_[tensor.index]; }
  Bytes bytes(TensorId tensor) const { return trace_[tensor].bytes; }
  bool at_home(TensorId tensor) const { return freedom_[tensor.index] == Freedom::at_home; }
  Order& order_of(TensorId tensor) { return bytes(tensor) < options_.least ? small_ : large_; }

  void emit(StepKind kind, TensorId tensor, std::string why = "") {
    edits_.insert(at_, Rank::run, tensor_step(kind, tensor), std::move(why));
  }

  void take_homes() {
    for (std::size_t i = 0; i < plan_.begin.size(); ++i) {
      const Carry& carry = trace_.carry[i];
      Cached& start = at(carry.start);
      if (plan_.begin[i].place == Place::device) {
        overflowed_ = !device_.allocate(bytes(carry.start)) || overflowed_;
        start.on_device = start.in_device = true;
      } else if (plan_.begin[i].place == Place::host) {
        host_.allocate(bytes(carry.start));
        start.on_host = start.in_host = start.current = true;
        start.host_home = at(carry.end).host_home = true;
      }
    }
  }

  // ---- the order of eviction

  /// The next step that reads the value, or kNever if it is gone or overwritten first.
  std::uint32_t next_need(TensorId tensor) {
    const std::span<const Touch> touches = touches_[tensor];
    for (std::uint32_t i = at(tensor).next; i < touches.size(); ++i) {
      if (touches[i].kind == StepKind::free_host) continue;
      return touches[i].needs ? touches[i].step : kNever;
    }
    return kNever;
  }

  /// Most recently used from now on.
  void touch(TensorId tensor) {
    forget(tensor);
    if (freedom_[tensor.index] != Freedom::evictable) return;
    at(tensor).rank = options_.evict == Evict::least_recent
                          ? ++uses_
                          : -static_cast<std::int64_t>(next_need(tensor));
    order_of(tensor).insert({at(tensor).rank, tensor.index});
  }
  void forget(TensorId tensor) { order_of(tensor).erase({at(tensor).rank, tensor.index}); }

  /// Steps over the touches of the current plan step.
  void pass(TensorId tensor) {
    const std::span<const Touch> touches = touches_[tensor];
    std::uint32_t& next = at(tensor).next;
    while (next < touches.size() && touches[next].step <= at_) ++next;
  }

  // ---- leaving and coming

  /// A range in the pool of the host; copies that only save a second copy make way.
  bool take_host(TensorId tensor) {
    Cached& cached = at(tensor);
    if (cached.on_host) return true;
    if (cached.host_home) return cached.on_host = true;
    std::optional<Bytes> offset = host_.allocate(bytes(tensor));
    while (!offset && !spare_.empty()) {
      drop_host_copy({*spare_.begin()});
      offset = host_.allocate(bytes(tensor));
    }
    if (!offset) return false;
    cached.host_offset = offset;
    return cached.on_host = true;
  }

  void give_back_host(TensorId tensor) {
    Cached& cached = at(tensor);
    if (cached.host_offset) host_.free(*cached.host_offset);
    cached.host_offset.reset();
    cached.on_host = cached.current = false;
    spare_.erase(tensor.index);
  }

  void drop_host_copy(TensorId tensor) {
    emit(StepKind::free_host, tensor);
    give_back_host(tensor);
  }

  /// Our copy of what is (or was) on the device is of no use any more.
  void drop_if_ours(TensorId tensor) {
    if (at(tensor).on_host && !at(tensor).in_host) drop_host_copy(tensor);
  }

  void leave_device(TensorId tensor) {
    Cached& cached = at(tensor);
    if (cached.offset) device_.free(*cached.offset, bytes(tensor));
    cached.offset.reset();
    cached.on_device = false;
    forget(tensor);
  }

  /// out(T) of one tensor. False if the host has no room for it.
  bool evict(TensorId tensor) {
    Cached& cached = at(tensor);
    const std::uint32_t next = next_need(tensor);
    if (next != kNever && !cached.current) {
      if (!take_host(tensor)) return false;
      cached.current = true;
      emit(StepKind::offload, tensor, why_out(tensor, next));
    }
    spare_.erase(tensor.index);
    emit(StepKind::free, tensor);
    leave_device(tensor);
    if (next == kNever) drop_if_ours(tensor);
    return true;
  }

  std::string why_out(TensorId tensor, std::uint32_t next) const {
    if (!context_.explain) return "";
    return fmt::format("{} ({}) leaves as {} needs room and the next to need it is {}",
                       trace_[tensor].name, format_bytes(bytes(tensor)), subject(at_),
                       subject(next));
  }

  const std::string& subject(std::uint32_t step) const {
    const PlanStep& of = plan_.steps[step];
    return of.kind == StepKind::run ? trace_[of.op()].name : trace_[of.tensor()].name;
  }

  /// Evicts the first that may go, large ones before small ones. False if there is none.
  bool evict_one(bool locked_too = false) {
    for (Order* order : {&large_, &small_})
      for (const auto& [rank, index] : *order) {
        const TensorId victim{index};
        if (at(victim).locked && !locked_too) continue;
        if (evict(victim)) return true;
      }
    return false;
  }

  void arrive(TensorId tensor, std::optional<Bytes> offset) {
    Cached& cached = at(tensor);
    cached.offset = offset;
    cached.on_device = true;
    touch(tensor);
  }

  void fetched(TensorId tensor, std::optional<Bytes> offset) {
    std::string why;
    if (context_.explain) why = fmt::format("{} needs {}", subject(at_), trace_[tensor].name);
    emit(StepKind::prefetch, tensor, std::move(why));
    arrive(tensor, offset);
    if (!at(tensor).in_host && !at(tensor).host_home) spare_.insert(tensor.index);
  }

  // ---- a run

  void run_op(const PlanStep& step, bool rerun) {
    const std::span<const Value> needs = needs_of(context_, step, rerun);
    const Grants grants = grants_of(context_, step, rerun);
    for (const Value& need : needs) at(need.tensor).locked = true;
    for (const TensorId output : grants.outputs) at(output).locked = true;
    if (!check_all(needs, grants)) settle(needs, grants);
    for (const auto& [offset, size] : transient_) device_.free(offset, size);
    transient_.clear();
    for (const Value& need : needs) at(need.tensor).locked = false;
    for (const TensorId output : grants.outputs) at(output).locked = false;
    for (const TensorId output : grants.outputs) {
      Cached& made = at(output);
      drop_if_ours(output);
      made.current = false;
      made.on_device = made.in_device = true;
    }
    for (const Value& need : needs) finish(need.tensor);
    for (const TensorId output : grants.outputs) finish(output);
  }

  void finish(TensorId tensor) {
    pass(tensor);
    if (!at_home(tensor)) touch(tensor);
  }

  /// Algorithm 2: inputs one by one, then what the run allocates itself; evicts what is not locked.
  bool check_all(std::span<const Value> needs, const Grants& grants) {
    for (const Value& need : needs) {
      if (at(need.tensor).on_device) continue;
      std::optional<Bytes> offset;
      while (!(offset = device_.allocate(bytes(need.tensor))))
        if (!evict_one()) return false;
      fetched(need.tensor, offset);
    }
    while (!grant(grants))
      if (!evict_one()) return false;
    return true;
  }

  /// Takes all that the run allocates, or nothing.
  bool grant(const Grants& grants) {
    std::vector<std::pair<Bytes, Bytes>> taken;
    const auto take = [&](Bytes size) {
      const std::optional<Bytes> offset = device_.allocate(size);
      if (offset) taken.emplace_back(*offset, size);
      return offset.has_value();
    };
    std::vector<TensorId> outputs;
    for (const TensorId output : grants.outputs)
      if (!at(output).on_device && !at_home(output)) outputs.push_back(output);
    const bool good = std::all_of(outputs.begin(), outputs.end(),
                                  [&](TensorId output) { return take(bytes(output)); }) &&
                      std::all_of(grants.transient.begin(), grants.transient.end(), take);
    if (!good) {
      for (auto last = taken.rbegin(); last != taken.rend(); ++last)
        device_.free(last->first, last->second);
      return false;
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) arrive(outputs[i], taken[i].first);
    transient_.assign(taken.begin() + static_cast<std::ptrdiff_t>(outputs.size()), taken.end());
    return true;
  }

  /// With all others gone there still is no hole: the run's own operands leave too, the least
  /// recent first, and come back into what room that makes.
  void settle(std::span<const Value> needs, const Grants& grants) {
    do {
      if (bring_back(needs, grants)) return;
    } while (evict_one(true));
    overflow(needs, grants);
  }

  bool bring_back(std::span<const Value> needs, const Grants& grants) {
    std::vector<std::pair<TensorId, Bytes>> brought;
    const auto undo = [&] {
      for (auto last = brought.rbegin(); last != brought.rend(); ++last) {
        device_.free(last->second, bytes(last->first));
        at(last->first).on_device = false;
      }
      return false;
    };
    for (const Value& need : needs) {
      if (at(need.tensor).on_device) continue;
      const std::optional<Bytes> offset = device_.allocate(bytes(need.tensor));
      if (!offset) return undo();
      brought.emplace_back(need.tensor, *offset);
      at(need.tensor).on_device = true;  // not granted again as an output
    }
    if (!grant(grants)) return undo();
    for (const auto& [tensor, offset] : brought) fetched(tensor, offset);
    return true;
  }

  /// Beyond the capacity: the plan goes on, and placement will say what it needs.
  void overflow(std::span<const Value> needs, const Grants& grants) {
    overflowed_ = true;
    for (const Value& need : needs)
      if (!at(need.tensor).on_device) fetched(need.tensor, device_.allocate(bytes(need.tensor)));
    for (const TensorId output : grants.outputs)
      if (!at(output).on_device && !at_home(output))
        arrive(output, device_.allocate(bytes(output)));
  }

  // ---- steps of the incoming plan

  void move(const PlanStep& step) {
    const TensorId tensor = step.tensor();
    pass(tensor);
    switch (step.kind) {
      case StepKind::run:
        return;
      case StepKind::free:
        return free(tensor);
      case StepKind::offload:
        return offload(tensor);
      case StepKind::prefetch:
        return prefetch(tensor);
      case StepKind::free_host:
        return free_host(tensor);
    }
  }

  void free(TensorId tensor) {
    at(tensor).in_device = false;
    if (at(tensor).on_device) {
      leave_device(tensor);
      spare_.erase(tensor.index);
    } else {
      edits_.remove(at_);
    }
    if (!at_home(tensor)) drop_if_ours(tensor);
  }

  void offload(TensorId tensor) {
    Cached& cached = at(tensor);
    cached.in_host = true;
    spare_.erase(tensor.index);
    if (cached.current && freedom_[tensor.index] == Freedom::evictable)
      return edits_.remove(at_);  // it is there already
    overflowed_ = !take_host(tensor) || overflowed_;
    cached.on_host = cached.current = true;
    if (cached.on_device && !at_home(tensor)) touch(tensor);
  }

  void prefetch(TensorId tensor) {
    Cached& cached = at(tensor);
    cached.in_device = true;
    if (at_home(tensor)) {
      cached.on_device = true;
      return;
    }
    cached.locked = true;
    std::optional<Bytes> offset = device_.allocate(bytes(tensor));
    if (!offset && freedom_[tensor.index] == Freedom::evictable) {
      edits_.remove(at_);  // the need will bring it
    } else {
      while (!offset && evict_one()) offset = device_.allocate(bytes(tensor));
      overflowed_ = !offset || overflowed_;
      arrive(tensor, offset);
    }
    cached.locked = false;
  }

  void free_host(TensorId tensor) {
    Cached& cached = at(tensor);
    cached.in_host = false;
    if (!cached.on_device && cached.in_device) return edits_.remove(at_);  // it is all there is
    give_back_host(tensor);
  }

  const PolicyContext& context_;
  const Trace& trace_;
  const Plan& plan_;
  const CacheOptions& options_;
  Touches touches_;
  std::vector<Freedom> freedom_;  // by tensor
  std::vector<Cached> tensors_;
  CacheArena device_;
  Heap host_;
  Edits edits_;
  Order large_, small_;            // evictable tensors on the device, the first to leave first
  std::set<std::uint32_t> spare_;  // on the device, and with a current copy of ours on the host
  std::vector<std::pair<Bytes, Bytes>> transient_;  // offset and size; of the current run
  std::int64_t uses_ = 0;
  std::uint32_t at_ = 0;
  bool overflowed_ = false;
};

}  // namespace

CacheResult cache_walk(const PolicyContext& context, const Plan& plan,
                       const CacheOptions& options) {
  return Walk(context, plan, options).run();
}

}  // namespace superneurons
