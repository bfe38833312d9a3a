// superneurons trace -- python SCRIPT: PyTorch training steps as a trace, by python/superneurons/.
#pragma once

#include <string>
#include <vector>

#include "cli/session.h"

namespace superneurons {

/// What `trace` and `convert` take for PyTorch programs; empty or 0 is the default of launch.py.
struct PythonOptions {
  bool program = false;  // not by PyTorch's ops, but by kernels as any other program
  int steps = 0;
  int warmup = -1;
  int untouched = -1;
  bool stop_after = false;
  bool strip_recompute = false;
  bool offload_capture = false;
  bool compiled = false;
  std::string keep_raw;
};

/// Whether a command is a Python program: it is an interpreter, starts one (torchrun), or is a
/// script whose first line names one.
bool runs_python(const std::vector<std::string>& command);

/// Runs the command under the capture and writes its trace. The command's exit code becomes the
/// session's. Error where it cannot be started.
Status trace_python(const std::vector<std::string>& command, const std::string& output,
                    const PythonOptions& options, Session& session);

/// Raw capture (file or folder) → trace.
Status convert_raw(const std::string& raw, const std::string& output, bool strip_recompute,
                   Session& session);

}  // namespace superneurons
