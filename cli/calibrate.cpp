// calibrate: measure this machine into a device profile.
#include "tracer/calibrate.h"

#include <fmt/format.h>

#include <memory>

#include "cli/fit_profile.h"
#include "cli/session.h"
#include "ir/files.h"
#include "ir/profile_io.h"

namespace superneurons {
namespace {

struct Options {
  std::string output;
  std::string on;
  std::string name;
  FitOptions fit;
};

Status calibrate(const Options& options, const Session& session) {
  const FitOptions& fit = options.fit;
  if (fit.traces.empty() && (fit.held_out || !fit.onto.empty() || !fit.device.empty()))
    return Error{.code = ErrorCode::bad_usage,
                 .message = "--device, --onto and --held-out go with --fit TRACE"};
  if (!options.fit.traces.empty()) return fit_profile(options.fit, options.output, session);
  if (options.output.empty())
    return Error{.code = ErrorCode::bad_usage, .message = "give the profile to write: -o FILE"};
  const auto on_cuda = wants_cuda(options.on);
  if (!on_cuda) return on_cuda.error();
  const CalibrateOptions how{
      .name = options.name,
      .origin = fmt::format("{} ({})", session.made_by, session.today),
      .progress = [&session](const std::string& line) { session.console.progress(line); },
      .stop = &session.stop};
#ifdef SUPERNEURONS_CUDA
  Result<DeviceProfile> profile = *on_cuda ? calibrate_cuda(how) : calibrate_host(how);
#else
  Result<DeviceProfile> profile = calibrate_host(how);
#endif
  if (!profile) return profile.error();
  if (Status status = write_profile(*profile, options.output); !status) return status;
  session.console.print(fmt::format(
      "{}: {}, out {:.1f} GB/s, in {:.1f} GB/s, both {:.1f} GB/s, launch {}, gap {}, wait {}\n",
      options.output, profile->device, profile->offload.bytes_per_ns,
      profile->prefetch.bytes_per_ns, profile->both_bytes_per_ns, format_time(profile->launch_ns),
      format_time(profile->gap_ns), format_time(profile->wait_ns)));
  return Ok{};
}

}  // namespace

void add_calibrate_command(cli::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  auto* command = add_command(app, session, "calibrate",
                              "measure this machine into a device profile", "-o this_machine.json",
                              [options, &session] { return calibrate(*options, session); });
  add_output_option(*command, "-o,--output", options->output, "profile to write");
  command->add_option("--on", options->on, "host or cuda (default: cuda where there is a GPU)");
  command->add_option("--name", options->name, "name of the profile");
  add_fit_options(*command, options->fit);
}

}  // namespace superneurons
