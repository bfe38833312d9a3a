// calibrate --fit: efficiencies of a device's roofline from recorded traces.
#pragma once

#include <string>
#include <vector>

#include "cli/session.h"

namespace superneurons {

struct FitOptions {
  std::vector<std::string> traces;
  std::string device;  // profile whose rates the efficiencies are of; "": the traces' device's
  std::string onto;    // profile that gets them; "": the same
  bool held_out = false;
  std::string json;
};
void add_fit_options(cli::Command& command, FitOptions& options);

/// Fits, prints how far off the fit is on what it was fitted on (with held_out: on what it was
/// not), and writes the profile to `output` unless that is empty.
Status fit_profile(const FitOptions& options, const std::string& output, const Session& session);

}  // namespace superneurons
