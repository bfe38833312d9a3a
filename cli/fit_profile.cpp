#include "cli/fit_profile.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ir/files.h"
#include "ir/profile_io.h"
#include "ir/trace_io.h"
#include "networks/fit_costs.h"

namespace superneurons {
namespace {

std::string percent(double share) { return fmt::format("{:+.1f} %", 100 * share); }
std::string unsigned_percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

void print(const std::vector<CostError>& errors, const Session& session) {
  session.console.print(fmt::format(
      "{:<22} {:<8} {:>6} {:>5} {:>10} {:>10} {:>8} {:>8} {:>8} {:>8}\n", "trace", "held out",
      "fit on", "ops", "measured", "predicted", "total", "sum |e|", "median", "p90"));
  for (const CostError& error : errors)
    session.console.print(
        fmt::format("{:<22} {:<8} {:>6} {:>5} {:>10} {:>10} {:>8} {:>8} {:>8} {:>8}\n", error.trace,
                    error.held_out.empty() ? "-" : error.held_out, error.fitted_on, error.ops,
                    format_time(error.measured), format_time(error.predicted),
                    percent(error.total()), unsigned_percent(error.absolute),
                    unsigned_percent(error.median), unsigned_percent(error.p90)));
}

Status write(const std::vector<CostError>& errors, const FitOptions& options,
             const DeviceProfile& profile, const Session& session) {
  using Json = nlohmann::ordered_json;
  Json json = {{"format", "superneurons-cost-errors"}, {"version", "0.1"}};
  json["options"] = Json::object();
  for (const auto& [name, value] : session.options) json["options"][name] = value;
  json["device"] = profile.device;
  json["errors"] = Json::array();
  for (const CostError& error : errors)
    json["errors"].push_back({{"trace", error.trace},
                              {"held_out", error.held_out},
                              {"fitted_on", error.fitted_on},
                              {"ops", error.ops},
                              {"measured_ns", error.measured.count},
                              {"predicted_ns", error.predicted.count},
                              {"total", error.total()},
                              {"absolute", error.absolute},
                              {"median", error.median},
                              {"p90", error.p90}});
  return write_json(options.json, json.dump(1) + "\n");
}

Result<std::vector<CostError>> errors_of(const FitOptions& options,
                                         const std::vector<Trace>& traces,
                                         const DeviceProfile& fitted) {
  if (options.held_out) {
    auto errors = held_out_errors(traces, fitted);
    if (errors && errors->empty())
      return Error{.code = ErrorCode::bad_usage,
                   .message = "--held-out takes traces of two networks, or of two batches"};
    return errors;
  }
  std::vector<CostError> errors;
  for (const Trace& trace : traces) {
    errors.push_back(cost_error(trace, fitted));
    errors.back().fitted_on = traces.size();
  }
  return errors;
}

/// The profile that gets the efficiencies; its origin says whose they are.
Result<DeviceProfile> profile_with(const FitOptions& options, const std::vector<Trace>& traces,
                                   const DeviceProfile& fitted, const Session& session) {
  Result<DeviceProfile> profile = options.onto.empty() ? fitted : find_profile(options.onto);
  if (!profile) return profile;
  profile->efficiency = fitted.efficiency;
  std::string names;
  for (const Trace& trace : traces) names += (names.empty() ? "" : ", ") + trace.name;
  const std::string marker = "; efficiencies ";
  profile->origin.resize(std::min(profile->origin.find(marker), profile->origin.size()));
  profile->origin += fmt::format("{}fitted on {} recorded on {} ({})", marker, names, fitted.device,
                                 session.today);
  return profile;
}

}  // namespace

void add_fit_options(cli::Command& command, FitOptions& options) {
  command.add_option("--fit", options.traces,
                     "measure nothing: fit the efficiencies of the cost model on these recorded "
                     "traces");
  command.add_option("--device", options.device,
                     "with --fit: profile of the device that the traces were recorded on "
                     "(default: found by its name)");
  command.add_option("--onto", options.onto,
                     "with --fit: profile of another device, which takes the efficiencies over");
  command.add_flag("--held-out", options.held_out,
                   "with --fit: show the error on each trace when its network, and when its batch, "
                   "is left out of the fit");
  add_json_option(command, options.json);
}

Status fit_profile(const FitOptions& options, const std::string& output, const Session& session) {
  std::vector<Trace> traces;
  std::vector<const Trace*> all;
  for (const std::string& file : options.traces) {
    auto trace = read_trace(file);
    if (!trace) return trace.error();
    traces.push_back(std::move(*trace));
  }
  for (const Trace& trace : traces) all.push_back(&trace);
  auto fitted = options.device.empty() ? profile_measured_on(traces.front().device)
                                       : find_profile(options.device);
  if (!fitted) return fitted.error();
  auto efficiency = fit_efficiency(all, *fitted);
  if (!efficiency) return efficiency.error();
  fitted->efficiency = std::move(*efficiency);
  const auto profile = profile_with(options, traces, *fitted, session);
  if (!profile) return profile.error();
  const auto errors = errors_of(options, traces, *fitted);
  if (!errors) return errors.error();
  print(*errors, session);
  if (Status status = write(*errors, options, *fitted, session); !status) return status;
  if (output.empty()) return Ok{};
  return write_profile(*profile, output);
}

}  // namespace superneurons
