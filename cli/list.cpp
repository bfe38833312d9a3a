// networks, policies, devices: what there is, generated from the registries.
#include <fmt/format.h>

#include "cli/session.h"
#include "ir/files.h"
#include "ir/profile_io.h"
#include "memory/allocator.h"
#include "networks/network.h"

namespace superneurons {
namespace {

Status list_networks() {
  for (const NetworkEntry& entry : networks())
    fmt::print("{:<16} {} (default batch {})\n", entry.name, entry.summary, entry.default_batch);
  fmt::print("{:<16} {}\n", "resnet:A,B,C,D", "bottleneck ResNet of depth 3(A+B+C+D)+2");
  return Ok{};
}

Status list_policies() {
  fmt::print("policies (passes compose with +, options as name:key=value,key=value):\n");
  for (const PolicyEntry& entry : policies()) {
    fmt::print("  {:<18} {}\n", entry.name, entry.summary);
    for (const OptionEntry& option : entry.options)
      fmt::print("    {:<18} {} (default {})\n", option.name, option.summary, option.fallback);
  }
  fmt::print("compositions:\n");
  for (const CompositionEntry& entry : compositions())
    fmt::print("  {:<18} = {}: {}\n", entry.name, entry.passes, entry.summary);
  fmt::print("  {:<18} any program: reads trace, profile and budget, answers with a plan\n",
             "exec:COMMAND");
  fmt::print("allocators (--allocator):\n");
  for (const AllocatorEntry& entry : allocators())
    fmt::print("  {:<18} {}\n", entry.name, entry.summary);
  return Ok{};
}

Status list_devices() {
  for (const auto& [name, file] : profile_files()) {
    const auto profile = read_profile(file);
    if (!profile) return profile.error();
    fmt::print("{:<12} {}, {} device memory, {:.1f} GB/s out, {:.1f} GB/s in, {}\n", name,
               profile->device, format_bytes(profile->device_memory), profile->offload.bytes_per_ns,
               profile->prefetch.bytes_per_ns,
               profile->measured ? "measured" : "from a data sheet");
  }
  return Ok{};
}

}  // namespace

void add_list_commands(CLI::App& app, Session& session) {
  add_command(app, session, "networks", "list the built-in networks", list_networks);
  add_command(app, session, "policies", "list policies, compositions and allocators",
              list_policies);
  add_command(app, session, "devices", "list the device profiles", list_devices);
}

}  // namespace superneurons
