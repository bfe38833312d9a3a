// networks, policies, devices: what there is, generated from the registries.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/session.h"
#include "ir/files.h"
#include "ir/profile_io.h"
#include "memory/allocator.h"
#include "networks/network.h"
#include "simulator/report.h"

namespace superneurons {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(std::string_view key, Json list) {
  Json json = {{"format", fmt::format("superneurons-{}", key)}, {"version", kReportVersion}};
  json[std::string(key)] = std::move(list);
  return json.dump(1) + "\n";
}

Status list_networks(const std::string& json_file, const Session& session) {
  Json json = Json::array();
  for (const NetworkEntry& entry : networks()) {
    session.console.print(fmt::format("{:<16} {} (default batch {})\n", entry.name, entry.summary,
                                      entry.default_batch));
    json.push_back(
        {{"name", entry.name}, {"summary", entry.summary}, {"default_batch", entry.default_batch}});
  }
  session.console.print(
      fmt::format("{:<16} {}\n", "resnet:A,B,C,D", "bottleneck ResNet of depth 3(A+B+C+D)+2"));
  session.console.print("lowerings (build --lowering):\n");
  for (const LoweringEntry& entry : lowerings())
    session.console.print(fmt::format("  {:<14} {}\n", entry.name, entry.summary));
  return write_json(json_file, dump("networks", std::move(json)));
}

void print_policy(const PolicyEntry& entry, Console& console) {
  console.print(fmt::format("  {:<18} {}\n", entry.name, entry.summary));
  for (const OptionEntry& option : entry.options)
    console.print(
        fmt::format("    {:<18} {} (default {})\n", option.name, option.summary, option.fallback));
}

Json json_of(const PolicyEntry& entry) {
  Json json = {{"name", entry.name}, {"summary", entry.summary}, {"needs", Json::array()}};
  for (const Fact fact : entry.needs)
    json["needs"].push_back(kFactNames[static_cast<std::size_t>(fact)]);
  json["options"] = Json::array();
  for (const OptionEntry& option : entry.options)
    json["options"].push_back(
        {{"name", option.name}, {"default", option.fallback}, {"summary", option.summary}});
  return json;
}

Status list_policies(const std::string& json_file, const Session& session) {
  Json json = {{"format", "superneurons-policies"}, {"version", kReportVersion}};
  Console& console = session.console;
  console.print(
      "policies (passes compose with +, from left to right: liveness goes first, as offload and\n"
      "recompute free nothing else; options as name:key=value,key=value):\n");
  for (const PolicyEntry& entry : policies()) {
    print_policy(entry, console);
    json["policies"].push_back(json_of(entry));
  }
  console.print("compositions:\n");
  for (const CompositionEntry& entry : compositions()) {
    console.print(fmt::format("  {:<18} = {}: {}\n", entry.name, entry.passes, entry.summary));
    json["compositions"].push_back(
        {{"name", entry.name}, {"passes", entry.passes}, {"summary", entry.summary}});
  }
  console.print(
      "frameworks: models of documented strategies, not those programs (on a trace of their own\n"
      "lowering: build --lowering):\n");
  for (const ModelEntry& entry : framework_models()) {
    console.print(fmt::format("  {:<18} = {}, lowering {}: {}\n", entry.name, entry.passes,
                              entry.lowering, entry.summary));
    json["models"].push_back({{"name", entry.name},
                              {"passes", entry.passes},
                              {"lowering", entry.lowering},
                              {"summary", entry.summary}});
  }
  console.print("also:\n");
  console.print(
      fmt::format("  {:<18} any program: reads trace, profile and budget, answers with a plan\n",
                  "exec:COMMAND"));
  console.print("allocators (--allocator):\n");
  for (const AllocatorEntry& entry : allocators()) {
    console.print(fmt::format("  {:<18} {}\n", entry.name, entry.summary));
    json["allocators"].push_back({{"name", entry.name}, {"summary", entry.summary}});
  }
  return write_json(json_file, json.dump(1) + "\n");
}

Status list_devices(const std::string& json_file, const Session& session) {
  Json json = Json::array();
  for (const auto& [name, file] : profile_files()) {
    const auto profile = read_profile(file);
    if (!profile) return profile.error();
    session.console.print(fmt::format(
        "{:<12} {}, {} device memory, {:.1f} GB/s out, {:.1f} GB/s in, {}\n", name, profile->device,
        format_bytes(profile->device_memory), profile->offload.bytes_per_ns,
        profile->prefetch.bytes_per_ns, profile->measured ? "measured" : "from a data sheet"));
    json.push_back({{"name", name},
                    {"file", file},
                    {"device", profile->device},
                    {"measured", profile->measured},
                    {"origin", profile->origin},
                    {"device_memory_bytes", profile->device_memory.count},
                    {"host_memory_bytes", profile->host_memory.count},
                    {"offload_bytes_per_ns", profile->offload.bytes_per_ns},
                    {"prefetch_bytes_per_ns", profile->prefetch.bytes_per_ns}});
  }
  if (json.empty())
    return Error{ErrorCode::io, "no device profiles found beside the program or in its sources"};
  return write_json(json_file, dump("devices", std::move(json)));
}

void add(cli::App& app, Session& session, const std::string& name, const std::string& summary,
         Status (*list)(const std::string&, const Session&)) {
  auto file = std::make_shared<std::string>();
  add_json_option(*add_command(app, session, name, summary, "",
                               [file, list, &session] { return list(*file, session); }),
                  *file);
}

}  // namespace

void add_list_commands(cli::App& app, Session& session) {
  add(app, session, "networks", "list the built-in networks", list_networks);
  add(app, session, "policies", "list policies, compositions and allocators", list_policies);
  add(app, session, "devices", "list the device profiles", list_devices);
}

}  // namespace superneurons
