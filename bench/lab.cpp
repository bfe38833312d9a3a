#include "bench/lab.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "ir/files.h"
#include "ir/profile_io.h"
#include "ir/trace_io.h"
#include "networks/network.h"
#include "tracer/calibrate.h"
#include "tracer/record.h"

namespace superneurons {

void say(const std::string& line) { fmt::print(stderr, "{}\n", line); }

Result<DeviceProfile> profile_of(const Lab& lab) {
  const std::string file = lab.out + "/profile.json";
  if (std::filesystem::exists(file)) return read_profile(file);
  const CalibrateOptions how{.name = lab.on_cuda() ? "h200" : "host",
                             .origin = fmt::format("{} ({})", lab.program, today()),
                             .progress = say};
#ifdef SUPERNEURONS_CUDA
  Result<DeviceProfile> profile = lab.on_cuda() ? calibrate_cuda(how) : calibrate_host(how);
#else
  Result<DeviceProfile> profile = calibrate_host(how);
#endif
  if (!profile) return profile;
  if (Status status = write_profile(*profile, file); !status) return status.error();
  return profile;
}

Result<Trace> recorded_trace(const Lab& lab, const std::string& network, std::int64_t batch) {
  const std::string file = fmt::format("{}/{}-b{}.jsonl.gz", lab.out, network, batch);
  if (std::filesystem::exists(file)) return read_trace(file);
  say(fmt::format("recording {} batch {}", network, batch));
  const auto graph = find_network(network);
  if (!graph) return graph.error();
  auto lowered = lower(*graph, {.batch = batch});
  if (!lowered) return lowered.error();
  std::string versions = "host backend";
#ifdef SUPERNEURONS_CUDA
  if (lab.on_cuda()) versions = cuda_versions();
#endif
  auto trace = record(std::move(*lowered),
                      {.on_cuda = lab.on_cuda(),
                       .origin = fmt::format("superneurons trace {} --batch {} ({}, {})", network,
                                             batch, versions, today()),
                       .progress = say});
  if (!trace) return trace;
  trace->device = versions.substr(0, versions.find(','));
  if (Status status = write_trace(*trace, file); !status) return status.error();
  say(fmt::format("{}: untraced {} traced {}", network, format_time(trace->step_ns_untraced),
                  format_time(trace->step_ns_traced)));
  return trace;
}

void add_prediction(Row& row, const Outcome& outcome) {
  row["placed_peak_bytes"] = outcome.placed_peak_bytes.count;
  row["used_peak_bytes"] = outcome.used_peak_bytes.count;
  row["host_bytes"] = outcome.host_bytes.count;
  row["compute_ns"] = outcome.compute_ns.count;
  row["offload_bytes"] = outcome.offload_bytes.count;
  row["prefetch_bytes"] = outcome.prefetch_bytes.count;
  row["recompute_runs"] = outcome.recompute_runs;
  row["recompute_ns"] = outcome.recompute_ns.count;
  for (std::size_t i = 0; i < kCauseNames.size(); ++i)
    row["stall_ns"][std::string(kCauseNames[i])] = outcome.stall_ns[i].count;
}

void add_measurement(Row& row, const Measured& measured, Nanoseconds predicted, int warmup) {
  std::vector<Nanoseconds> steps(measured.steps.begin() + warmup, measured.steps.end());
  std::sort(steps.begin(), steps.end());
  const Nanoseconds middle = steps[steps.size() / 2];
  row["step_ns"] = predicted.count;
  row["measured_step_ns"] = middle.count;
  row["error_percent"] =
      100.0 * (static_cast<double>(predicted.count) / static_cast<double>(middle.count) - 1);
  row["fastest_ns"] = steps.front().count;
  row["slowest_ns"] = steps.back().count;
  row["measured_peak_bytes"] = measured.peak.count;
  row["outside_bytes"] = measured.outside.count;
}

std::set<std::string> finished_rows(const std::string& file,
                                    const std::function<std::string(const Row&)>& key) {
  std::set<std::string> done;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const Row row = Row::parse(line, nullptr, false);
    if (!row.is_object()) continue;
    if (row.contains("wall_s") || row.value("answer", "") == "does_not_fit") done.insert(key(row));
  }
  return done;
}

bool ends_with_newline(const std::string& file) {
  std::ifstream in(file, std::ios::ate);
  if (!in || in.tellg() <= 0) return true;
  in.seekg(-1, std::ios::end);
  return in.get() == '\n';
}

}  // namespace superneurons
