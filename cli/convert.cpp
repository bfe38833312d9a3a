// convert: what a capture of a PyTorch program, or the tracer of a CUDA program, wrote while it ran
// → trace.
#include <filesystem>
#include <memory>
#include <system_error>

#include "cli/activity_traces.h"
#include "cli/options.h"
#include "cli/session.h"
#include "cli/trace_python.h"

namespace superneurons {
namespace {

/// What it is shows first, and then it is read.
Status can_be_read_twice(const std::string& path) {
  std::error_code none;
  const auto type = std::filesystem::status(path, none).type();
  if (path != "-" && type != std::filesystem::file_type::fifo &&
      type != std::filesystem::file_type::character)
    return Ok{};
  return Error{ErrorCode::bad_usage, "is read twice (would be a file or a folder)", path};
}

}  // namespace

void add_convert_command(cli::App& app, Session& session) {
  struct ConvertOptions {
    std::string raw, output;
    bool strip_recompute = false;
    ActivityOptions activity;
  };
  auto options = std::make_shared<ConvertOptions>();
  auto* command = add_command(
      app, session, "convert",
      "make a trace of the raw capture that trace --keep-raw, or a program that was killed, left, "
      "or of the log of trace --keep-log",
      "raw -o train.jsonl.gz", [options, &session] {
        if (Status status = can_be_read_twice(options->raw); !status) return status;
        if (is_activity_log(options->raw))
          return convert_log(options->raw, options->output, options->activity, session);
        return convert_raw(options->raw, options->output, options->strip_recompute, session);
      });
  command
      ->add_option("raw", options->raw, "raw capture: a file, or the folder of several; or a log")
      ->required();
  add_output_option(*command, "-o,--output", options->output, "trace to write")->required();
  command->add_flag("--strip-recompute", options->strip_recompute,
                    "without what activation checkpointing computes again");
  add_window_options(*command, options->activity);
}

}  // namespace superneurons
