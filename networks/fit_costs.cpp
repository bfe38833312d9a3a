#include "networks/fit_costs.h"

#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <array>
#include <cmath>

#include "networks/roofline.h"

namespace superneurons {
namespace {

/// One op: work at the device's own rates, in ns, and what it took.
struct Sample {
  double arithmetic, traffic, measured;
};

// Unknowns are ns per ns at the device's rates: 1 / efficiency.
constexpr double kLeastArithmetic = 1, kLeastTraffic = 0.5;

double weight(const Sample& sample) { return std::pow(sample.measured, -0.75); }

/// min |A x - b| with x >= 0. There are three unknowns: every set of those above 0 is tried.
Eigen::Vector3d least_squares(const Eigen::MatrixX3d& a, const Eigen::VectorXd& b) {
  Eigen::Vector3d best = Eigen::Vector3d::Zero();
  double least = b.squaredNorm();
  for (unsigned set = 1; set < 8; ++set) {
    std::vector<int> columns;
    for (int column = 0; column < 3; ++column)
      if (set >> column & 1) columns.push_back(column);
    const Eigen::MatrixXd part = a(Eigen::all, columns);
    const Eigen::VectorXd x = part.colPivHouseholderQr().solve(b);
    if (!x.allFinite() || x.minCoeff() < 0) continue;
    const double rest = (part * x - b).squaredNorm();
    if (rest >= least * (1 - 1e-12)) continue;
    least = rest;
    best.setZero();
    for (std::size_t i = 0; i < columns.size(); ++i) best[columns[i]] = x[static_cast<long>(i)];
  }
  return best;
}

Efficiency fit(const std::vector<Sample>& samples) {
  const auto rows = static_cast<long>(samples.size());
  Eigen::MatrixX3d a(rows, 3);
  Eigen::VectorXd b(rows);
  bool arithmetic = false;
  for (long i = 0; i < rows; ++i) {
    const Sample& sample = samples[static_cast<std::size_t>(i)];
    const double w = weight(sample);
    a.row(i) << w, w * sample.arithmetic, w * sample.traffic;
    b[i] = w * (sample.measured - kLeastArithmetic * sample.arithmetic -
                kLeastTraffic * sample.traffic);
    arithmetic = arithmetic || sample.arithmetic > 0;
  }
  const Eigen::Vector3d above = least_squares(a, b);
  Efficiency efficiency;
  efficiency.floor_ns = {static_cast<std::int64_t>(std::llround(above[0]))};
  if (arithmetic) efficiency.flops = 1 / (kLeastArithmetic + above[1]);
  efficiency.bandwidth = 1 / (kLeastTraffic + above[2]);
  return efficiency;
}

using Groups = std::map<std::string, std::vector<Sample>>;

/// The op counts for its variant and, as what others fall back on, for its kind and for "".
void add(Groups& groups, const Work& work, const Sample& sample) {
  const auto keys = efficiency_keys(work);
  for (const std::string& key : keys) {
    const bool other_arithmetic = work.tf32 && !key.empty() && !key.ends_with("+tf32");
    if (!other_arithmetic) groups[key].push_back(sample);
  }
}

std::string problem_of(const Trace& trace, const DeviceProfile& profile) {
  if (trace.device.empty() || trace.capability(Fact::durations) == Capability::none)
    return fmt::format("{} was measured on no device", trace.name);
  if (trace.capability(Fact::durations) != Capability::exact)
    return fmt::format("the times of {} are not measured, or not all of them ({})", trace.name,
                       trace.origin);
  if (trace.device != profile.device)
    return fmt::format("{} was measured on {}, and profile {} is of {}", trace.name, trace.device,
                       profile.name, profile.device);
  if (trace.ops.empty()) return fmt::format("{} has no ops", trace.name);
  return {};
}

const Choice& recorded_choice(const Op& op) { return op.choices[op.recorded]; }

/// Whether the op was allowed TF32; its fastest choice may have been fp32 all the same.
bool allowed_tf32(const Trace& trace, const Op& op) {
  return trace.math == "tf32" && !recorded_choice(op).math.empty();
}

/// Value at that share of the way through.
double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

using Chosen = std::vector<const Trace*>;

template <class Keep>
Chosen chosen(std::span<const Trace> traces, Keep keep) {
  Chosen kept;
  for (const Trace& trace : traces)
    if (keep(trace)) kept.push_back(&trace);
  return kept;
}

Status add_error(const Trace& trace, const Chosen& fitted_on, const char* held_out,
                 DeviceProfile profile, std::vector<CostError>& errors) {
  if (fitted_on.empty()) return Ok{};
  auto efficiency = fit_efficiency(fitted_on, profile);
  if (!efficiency) return efficiency.error();
  profile.efficiency = std::move(*efficiency);
  CostError error = cost_error(trace, profile);
  error.held_out = held_out;
  error.fitted_on = fitted_on.size();
  errors.push_back(std::move(error));
  return Ok{};
}

}  // namespace

double CostError::total() const {
  return measured.count == 0
             ? 0
             : static_cast<double>(predicted.count) / static_cast<double>(measured.count) - 1;
}

Result<std::map<std::string, Efficiency>> fit_efficiency(std::span<const Trace* const> traces,
                                                         const DeviceProfile& profile) {
  if (!(profile.flops_per_ns > 0) || !(profile.memory_bytes_per_ns > 0))
    return Error{ErrorCode::bad_usage,
                 fmt::format("profile {} has no flops_per_ns or memory_bytes_per_ns to be "
                             "efficient at",
                             profile.name)};
  Groups groups;
  for (const Trace* trace : traces) {
    if (std::string problem = problem_of(*trace, profile); !problem.empty())
      return Error{ErrorCode::bad_input, std::move(problem)};
    for (const Op& op : trace->ops) {
      const bool tf32 = allowed_tf32(*trace, op) && profile.tf32_flops_per_ns > 0;
      const auto works = work_of(op, tf32);
      const auto measured = static_cast<double>(recorded_choice(op).ns.count);
      if (works.size() != 1 || measured <= 0) continue;  // of a fused op nobody knows the parts
      const double peak = works[0].tf32 ? profile.tf32_flops_per_ns : profile.flops_per_ns;
      add(groups, works[0],
          {works[0].flops / peak, works[0].bytes / profile.memory_bytes_per_ns, measured});
    }
  }
  std::map<std::string, Efficiency> efficiency;
  for (const auto& [key, samples] : groups) efficiency[key] = fit(samples);
  return efficiency;
}

CostError cost_error(const Trace& trace, const DeviceProfile& profile) {
  CostError error{.trace = trace.name};
  std::vector<double> relative;
  double absolute = 0;
  for (const Op& op : trace.ops) {
    Choice choice = recorded_choice(op);
    const double measured = static_cast<double>(choice.ns.count);
    if (measured <= 0) continue;
    if (allowed_tf32(trace, op)) choice.math = "tf32";
    const Nanoseconds predicted = roofline_time(op, choice, profile);
    const double off = std::abs(static_cast<double>(predicted.count) - measured);
    ++error.ops;
    error.measured += choice.ns;
    error.predicted += predicted;
    absolute += off;
    relative.push_back(off / measured);
  }
  if (error.ops > 0) error.absolute = absolute / static_cast<double>(error.measured.count);
  error.median = quantile(relative, 0.5);
  error.p90 = quantile(relative, 0.9);
  return error;
}

Result<std::vector<CostError>> held_out_errors(std::span<const Trace> traces,
                                               const DeviceProfile& profile) {
  std::vector<CostError> errors;
  for (const Trace& held : traces) {
    const auto other_network =
        chosen(traces, [&](const Trace& trace) { return trace.network != held.network; });
    if (Status status = add_error(held, other_network, "network", profile, errors); !status)
      return status.error();
    const bool sibling = std::any_of(traces.begin(), traces.end(), [&](const Trace& trace) {
      return trace.network == held.network && trace.math == held.math && trace.batch != held.batch;
    });
    if (!sibling) continue;
    const auto other_batch = chosen(traces, [&](const Trace& trace) {
      return trace.network != held.network || trace.batch != held.batch;
    });
    if (Status status = add_error(held, other_batch, "batch", profile, errors); !status)
      return status.error();
  }
  return errors;
}

}  // namespace superneurons
