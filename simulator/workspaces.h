// Workspaces: what a plan grants to each op that has several ways to run, and what the op would
// take for top speed (figure 12 of SuperNeurons, PPoPP 2018: assigned beside wanted, 1f ... 5b).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/plan.h"

namespace superneurons {

struct WorkspaceRow {
  std::string op;
  std::string choice;   // algorithm that the plan takes
  std::string fastest;  // the fastest measured one, deterministic and in the recorded math mode
  Bytes assigned{};     // workspace of the one
  Bytes wanted{};       // and of the other
  std::int64_t runs = 0;
  Nanoseconds ns{};    // of one run
  Nanoseconds lost{};  // of all runs, beyond what the fastest would take
};

/// A row for each op that the plan runs and that has several choices, by first run: forward as the
/// layers go, then backward in reverse.
std::vector<WorkspaceRow> workspaces_of(const Trace& trace, const Plan& plan);

/// Sum of what they lost.
Nanoseconds total_lost(std::span<const WorkspaceRow> rows);

/// A table, with the largest workspaces and the sums of times below it.
std::string format_workspaces(std::span<const WorkspaceRow> rows);

}  // namespace superneurons
