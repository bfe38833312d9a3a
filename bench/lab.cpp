#include "bench/lab.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>

#include "cli/record_fallbacks.h"
#include "ir/files.h"
#include "ir/profile_io.h"
#include "ir/trace_io.h"
#include "tracer/activity.h"
#include "tracer/calibrate.h"
#include "tracer/record.h"

namespace superneurons {
namespace {

/// Held by one process at a time; an empty file stays behind.
class FileLock {
 public:
  explicit FileLock(const std::string& path)
      : file_(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644)) {
    if (file_ >= 0) (void)::flock(file_, LOCK_EX);
  }
  ~FileLock() {
    if (file_ >= 0) (void)::close(file_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int file_;
};

bool ends_with_newline(const std::string& file) {
  std::ifstream in(file, std::ios::ate);
  if (!in || in.tellg() <= 0) return true;
  in.seekg(-1, std::ios::end);
  return in.get() == '\n';
}

std::string file_of(const Lab& lab, const Recording& recording) {
  std::string name = fmt::format("{}-b{}", recording.network, recording.batch);
  if (recording.updates == Updates::arrive) name += "-arrive";
  if (recording.rate != LoweringOptions{}.rate) name += fmt::format("-r{}", recording.rate);
  return fmt::format("{}/{}.jsonl.gz", lab.out, name);
}

Result<Trace> record_anew(const Lab& lab, const DeviceProfile& profile,
                          const Recording& recording) {
  const auto graph = find_network(recording.network);
  if (!graph) return graph.error();
  auto lowered = lower(
      *graph, {.batch = recording.batch, .updates = recording.updates, .rate = recording.rate});
  if (!lowered) return lowered.error();
  std::string versions = "host backend";
#ifdef SUPERNEURONS_CUDA
  if (lab.on_cuda()) versions = cuda_versions();
#endif
  auto trace =
      record(std::move(*lowered),
             {.on_cuda = lab.on_cuda(),
              .choice_steps = recording.choice_steps,
              .untraced_steps = lab.on_cuda() ? recording.untraced_steps : 3,
              .fallbacks = record_fallbacks(profile, nullptr),
              .origin = fmt::format("superneurons trace {} --batch {} --update {} ({}, {})",
                                    recording.network, recording.batch,
                                    kUpdatesNames[static_cast<std::size_t>(recording.updates)],
                                    versions, today()),
              .progress = say});
  if (trace) trace->device = versions.substr(0, versions.find(','));
  return trace;
}

}  // namespace

void say(const std::string& line) { fmt::print(stderr, "{}\n", line); }

double seconds_since(std::chrono::steady_clock::time_point begin) {
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  return std::round(passed.count() * 100) / 100;
}

double Lab::elapsed_s() const { return seconds_since(begin); }

Status prepare_lab(const Lab& lab, int steps, int warmup) {
  if (lab.on != "cuda" && lab.on != "host")
    return Error{.code = ErrorCode::bad_usage,
                 .message = fmt::format("--on {} is neither cuda nor host", lab.on)};
  if (warmup < 0 || steps <= warmup)
    return Error{.code = ErrorCode::bad_usage, .message = "--steps must exceed --warmup"};
  std::error_code failed;
  std::filesystem::create_directories(lab.out, failed);
  if (!failed) return Ok{};
  return Error{.code = ErrorCode::io, .message = failed.message(), .file = lab.out};
}

Result<DeviceProfile> profile_of(const Lab& lab) {
  const std::string file = lab.out + "/profile.json";
  const FileLock lock(file + ".lock");
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

Result<Trace> recorded_trace(const Lab& lab, const DeviceProfile& profile,
                             const Recording& recording) {
  const std::string file = file_of(lab, recording);
  const FileLock lock(file + ".lock");
  if (std::filesystem::exists(file)) return read_trace(file);
  say(fmt::format("recording {} batch {}", recording.network, recording.batch));
  const auto begin = std::chrono::steady_clock::now();
  auto trace = record_anew(lab, profile, recording);
  if (!trace) return trace;
  if (Status status = write_trace(*trace, file); !status) return status.error();
  say(fmt::format("{}: untraced {} traced {}, recorded in {} s", recording.network,
                  format_time(trace->step_ns_untraced), format_time(trace->step_ns_traced),
                  seconds_since(begin)));
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

void add_measurement(Row& row, const Measured& measured, std::span<const Nanoseconds> counted,
                     Nanoseconds predicted) {
  const Nanoseconds step = median({counted.begin(), counted.end()});
  const auto [fastest, slowest] = std::minmax_element(counted.begin(), counted.end());
  row["step_ns"] = predicted.count;
  row["measured_step_ns"] = step.count;
  row["error_percent"] =
      100.0 * (static_cast<double>(predicted.count) / static_cast<double>(step.count) - 1);
  row["fastest_ns"] = fastest->count;
  row["slowest_ns"] = slowest->count;
  row["measured_peak_bytes"] = measured.peak.count;
  row["outside_bytes"] = measured.outside.count;
}

std::map<std::string, Row> finished_rows(const std::string& file, const KeyOf& key) {
  std::map<std::string, Row> done;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    Row row = Row::parse(line, nullptr, false);
    if (!row.is_object()) continue;
    if (!row.contains("wall_s") && row.value("answer", "") != "does_not_fit") continue;
    std::string name = key(row);
    done.insert_or_assign(std::move(name), std::move(row));
  }
  return done;
}

Status append_row(const std::string& file, const Row& row) {
  const std::string text = row.dump(-1, ' ', false, Row::error_handler_t::replace);
  {
    const FileLock lock(file + ".lock");
    const bool whole = ends_with_newline(file);
    std::ofstream out(file, std::ios::app);
    out << (whole ? "" : "\n") << text << std::endl;
    if (!out) return Error{.code = ErrorCode::io, .message = "cannot be written", .file = file};
  }
  say(text);
  return Ok{};
}

Result<Part> parse_part(const std::string& text) {
  Part part;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%zu/%zu%c", &part.part, &part.parts, &rest) == 2 &&
      part.part >= 1 && part.part <= part.parts)
    return part;
  return Error{.code = ErrorCode::bad_usage,
               .message = fmt::format("--part {} is not of the form 1/2", text)};
}

}  // namespace superneurons
