#include "cli/trace_python.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "cli/trace_program.h"

namespace superneurons {
namespace {

namespace fs = std::filesystem;

constexpr std::array kStarters = {"torchrun", "accelerate", "deepspeed", "ipython", "ipython3"};

/// python, python3.11, python3.13t, python3-dbg; not python_benchmark or python-config.
bool is_interpreter(const std::string& word) {
  const std::string name = fs::path(word).filename().string();
  const std::string python = "python";
  if (name.rfind(python, 0) != 0) return false;
  const auto end = std::min(name.find_first_not_of("0123456789.", python.size()), name.size());
  const std::string rest = name.substr(end);
  return rest.empty() || rest == "t" || rest == "d" || rest == "-dbg";
}

/// "#!/usr/bin/env python3" at the head of a file on the PATH or by its name.
bool has_python_in_first_line(const std::string& word) {
  std::error_code none;
  for (const std::string& place : places_of(word)) {
    if (!fs::is_regular_file(place, none)) continue;
    std::ifstream file(place, std::ios::binary);
    std::array<char, 256> head{};
    file.read(head.data(), head.size() - 1);
    const std::string line(head.data(), std::find(head.begin(), head.end(), '\n'));
    return line.rfind("#!", 0) == 0 && line.find("python") != std::string::npos;
  }
  return false;
}

/// The folder that has the Python package: of the installation, or of the source tree.
Result<std::string> find_package() {
  std::error_code none;
  const fs::path folder = fs::read_symlink("/proc/self/exe", none).parent_path();
  for (const fs::path& place :
       {folder / "../share/superneurons/python", fs::path(SUPERNEURONS_SOURCE_DIR) / "python"})
    if (fs::exists(place / "superneurons" / "launch.py", none))
      return place.lexically_normal().string();
  return Error{ErrorCode::device,
               "the Python package of superneurons is neither in ../share/superneurons/python nor "
               "in the source tree"};
}

/// Which makes traces of the kernels of compiled programs.
std::string this_program() {
  std::error_code none;
  return fs::read_symlink("/proc/self/exe", none).string();
}

/// The words that run `module`.main() of the package, whatever the folder and the environment.
std::vector<std::string> python_command(const std::string& interpreter, const std::string& package,
                                        const std::string& call) {
  // Isolated, and without site: what the program has in its environment is for the program.
  return {interpreter,
          "-I",
          "-S",
          "-c",
          fmt::format("import sys\n"
                      "if sys.version_info < (3, 10): sys.exit('superneurons: Python 3.10 is "
                      "needed, {{}} is older'.format(sys.executable))\n"
                      "package = sys.argv.pop(1)\n"
                      "sys.path.insert(0, package)\n"
                      "{}\n",
                      call),
          package};
}

}  // namespace

bool runs_python(const std::vector<std::string>& command) {
  const std::string name = fs::path(command.front()).filename().string();
  return is_interpreter(command.front()) ||
         std::find(kStarters.begin(), kStarters.end(), name) != kStarters.end() ||
         has_python_in_first_line(command.front());
}

Status trace_python(const std::vector<std::string>& command, const std::string& output,
                    const PythonOptions& options, Session& session) {
  const auto package = find_package();
  if (!package) return package.error();
  const std::string interpreter = is_interpreter(command.front()) ? command.front() : "python3";
  std::vector<std::string> words = python_command(interpreter, *package,
                                                  "from superneurons.launch import PROGRAM, main\n"
                                                  "sys.exit(main(PROGRAM))");
  const auto library = find_library();
  const auto add = [&words](std::initializer_list<std::string> more) {
    words.insert(words.end(), more);
  };
  add({"-o", output, "--library", library ? *library : ""});
  if (options.steps > 0) add({"--steps", std::to_string(options.steps)});
  if (options.warmup >= 0) add({"--warmup", std::to_string(options.warmup)});
  if (options.untouched >= 0) add({"--untouched", std::to_string(options.untouched)});
  if (options.stop_after) add({"--stop-after"});
  if (options.strip_recompute) add({"--strip-recompute"});
  if (options.offload_capture) add({"--offload-capture"});
  if (options.compiled) add({"--compiled", "--superneurons", this_program()});
  if (!options.keep_raw.empty()) add({"--keep-raw", options.keep_raw});
  add({"--"});
  words.insert(words.end(), command.begin(), command.end());
  const auto ended = run_command(words, environment_with({}));
  if (!ended) return not_run(ended.error(), session);
  session.exit_code = ended->exit_code;
  return Ok{};
}

Status convert_raw(const std::string& raw, const std::string& output, bool strip_recompute,
                   Session& session) {
  const auto package = find_package();
  if (!package) return package.error();
  std::vector<std::string> words = python_command("python3", *package,
                                                  "from superneurons.convert import main\n"
                                                  "from superneurons.files import run_main\n"
                                                  "sys.exit(run_main(lambda: main(sys.argv[1:])))");
  words.insert(words.end(), {"-o", output});
  words.insert(words.end(), {"--superneurons", this_program()});
  if (strip_recompute) words.push_back("--strip-recompute");
  words.insert(words.end(), {"--", raw});
  const auto ended = run_command(words, environment_with({}));
  if (!ended) return ended.error();
  session.exit_code = ended->exit_code;
  return Ok{};
}

}  // namespace superneurons
