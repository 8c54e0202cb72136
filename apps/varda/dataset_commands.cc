// dataset: commands for datasets on this machine.
#include <cstdio>
#include <memory>

#include "base/text.h"
#include "cli/dataset.h"
#include "command.h"
#include "progress.h"

namespace varda::app {
namespace {

struct CountFlags {
  std::string path, state;
  std::vector<std::string> roots;
  cli::CountOptions options;
};

Status count(const Context& ctx, const Globals& globals, const CountFlags& flags) {
  TRY_VOID(set_up_logs(globals, log::Level::kWarn));
  cli::CountOptions options = flags.options;
  if (flags.path.empty())
    return Error(Code::kInvalid, "PATH is empty: the file or folder to count is needed");
  options.path = std::filesystem::absolute(flags.path);
  options.state = flags.state;
  for (const std::string& root : flags.roots) options.roots.emplace_back(root);
  ProgressBar bar(flags.path);
  options.progress = [&bar](std::uint64_t done, std::uint64_t total) {
    bar.update("counting", done, total);
  };
  const auto text = cli::count_dataset(ctx, os::real_file_system(), options);
  bar.clear();
  TRY(const std::string out, text);
  std::fwrite(out.data(), 1, out.size(), stdout);
  return {};
}

std::string names_of_formats() {
  return join(dataset::formats(), ", ",
              [](const auto& format) { return std::string(format->name); });
}

}  // namespace

void add_dataset_commands(Program program) {
  Globals& globals = program.globals;
  Run& chosen = program.chosen;
  CLI::App* dataset = program.parser.add_subcommand("dataset", "inspect datasets on this machine");
  dataset->require_subcommand(1);

  const auto flags = std::make_shared<CountFlags>();
  CLI::App* command = dataset->add_subcommand(
      "count", "count the samples of a file or folder exactly, or print why counting failed");
  command
      ->add_option("path", flags->path,
                   "file or folder; for voc and imagefolder a folder, for coco a file")
      ->required();
  command->add_option("--format", flags->options.format, names_of_formats())->required();
  command
      ->add_option("--header", flags->options.header,
                   "whether the first record of csv and tsv names the columns: auto, yes or no")
      ->capture_default_str();
  command->add_option("-o,--output", flags->options.output, "json or yaml; default: text");
  command->add_option(
      "--state", flags->state,
      "file that records where counting stopped: the next count reads only what was added; not "
      "for voc and imagefolder");
  command->add_option("--allow-files-below", flags->roots,
                      "links must stay below this directory; default: no limit");
  command->callback([&chosen, &globals, flags] {
    chosen = [&globals, flags](const Context& ctx) { return count(ctx, globals, *flags); };
  });
}

}  // namespace varda::app
