// samples: lists, shows, labels and exports kept samples on this machine.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/samples.h"
#include "command.h"
#include "os/new_file.h"

namespace varda::app {
namespace {

using cli::FoundSpool;
using spool::Facts;

struct SampleFlags {
  std::string model, ns = "default", data_dir, node, spool, output = "table";
  std::vector<std::string> ids;
  std::string predicted, to;
  bool contact_sheet = false;
};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<os::Path> spool_of(const SampleFlags& flags) {
  os::FileSystem& fs = os::real_file_system();
  if (!flags.spool.empty()) {
    const os::Path root = std::filesystem::absolute(flags.spool).lexically_normal();
    TRY(const auto info, fs.stat(root / spool::kPending));
    if (info) return root;
    return Error(Code::kNotFound, root.string() + " has no samples: it has no folder " +
                                      std::string(spool::kPending));
  }
  TRY(const std::filesystem::path data, data_dir_of(flags.data_dir));
  TRY(const auto all, cli::find_spools(fs, data));
  std::vector<FoundSpool> fit = cli::spools_of(all, flags.model, flags.ns);
  if (!flags.node.empty())
    std::erase_if(fit, [&](const FoundSpool& one) { return one.node != flags.node; });
  if (fit.size() == 1) return fit.front().root;
  std::string known;
  for (const FoundSpool& one : fit.empty() ? all : fit)
    known +=
        (known.empty() ? "" : ", ") + one.key + (one.node.empty() ? "" : " of node " + one.node);
  if (fit.empty())
    return Error(Code::kNotFound,
                 "no samples of model " + flags.model + " are below " + data.string() +
                     (known.empty() ? "; spec.samples of an InferenceModel makes its node keep some"
                                    : "; there are those of " + known));
  return Error(Code::kInvalid,
               "several models fit: " + known + "; choose with --node or a full name");
}

std::size_t columns() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

void print_text(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

Status write_sheet(const os::Path& root, const std::string& title, const std::string& to) {
  os::FileSystem& fs = os::real_file_system();
  TRY(const auto all, spool::list(fs, root));
  std::vector<cli::SheetItem> items;
  for (const Facts& facts : all) {
    auto bytes = spool::read_sample(fs, root, facts);
    if (bytes.ok()) items.push_back({facts, std::move(bytes).value()});
  }
  TRY_VOID(os::write_file_atomically(fs, std::filesystem::absolute(to),
                                     cli::contact_sheet(title, items)));
  std::printf("%zu samples on the contact sheet %s\n", items.size(), to.c_str());
  return {};
}

Status list_samples(const SampleFlags& flags) {
  TRY(const os::Path root, spool_of(flags));
  TRY(const auto all, spool::list(os::real_file_system(), root));
  print_text(flags.output == "json" ? cli::samples_json(all)
                                    : cli::samples_table(all, system_clock().wall()));
  return {};
}

Status show_samples(const SampleFlags& flags) {
  TRY(const os::Path root, spool_of(flags));
  if (flags.contact_sheet || !flags.to.empty())
    return write_sheet(root, "Samples of " + (flags.model.empty() ? root.string() : flags.model),
                       flags.to.empty() ? "samples.html" : flags.to);
  os::FileSystem& fs = os::real_file_system();
  TRY(const auto all, spool::list(fs, root));
  if (all.empty()) return Error(Code::kNotFound, "there are no samples without a label");
  std::vector<Facts> chosen{all.back()};  // the newest
  if (!flags.ids.empty()) {
    TRY(chosen, cli::choose_samples(all, flags.ids));
  }
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  for (const Facts& facts : chosen) {
    if (terminal) {
      TRY(const std::string bytes, spool::read_sample(fs, root, facts));
      if (const auto picture = cli::picture_of(facts, bytes); picture.ok())
        print_text(
            cli::terminal_picture(*picture,
                                  cli::terminal_of(environment("TERM"), environment("TERM_PROGRAM"),
                                                   environment("KITTY_WINDOW_ID")),
                                  std::min<std::size_t>(columns(), 64)));
    }
    print_text(cli::sample_text(facts));
  }
  return {};
}

Status label_samples(SampleFlags flags) {
  TRY(const os::Path root, spool_of(flags));
  os::FileSystem& fs = os::real_file_system();
  if (flags.ids.empty()) return Error(Code::kInvalid, "the class is missing");
  const std::string class_name = flags.ids.back();
  flags.ids.pop_back();
  TRY(const auto all, spool::list(fs, root));
  TRY(std::vector<Facts> chosen, cli::choose_samples(all, flags.ids));
  if (!flags.predicted.empty()) {
    for (const Facts& facts : all)
      if (!facts.answers.empty() && !facts.answers.front().best.empty() &&
          facts.answers.front().best.front().label == flags.predicted)
        chosen.push_back(facts);
  } else if (chosen.empty()) {
    return Error(Code::kInvalid, "no sample is named: write ids before the class, or --predicted");
  }
  std::size_t labelled = 0;
  for (const Facts& facts : chosen) {
    const Status status = spool::label(fs, root, facts.id, class_name);
    if (!status.ok() && status.error().code() == Code::kNotFound) continue;  // named twice, or gone
    TRY_VOID(status);
    ++labelled;
  }
  std::printf("%zu samples labelled %s\n", labelled, class_name.c_str());
  return {};
}

Status export_samples(const SampleFlags& flags) {
  TRY(const os::Path root, spool_of(flags));
  os::FileSystem& fs = os::real_file_system();
  if (flags.to.ends_with(".html")) return write_sheet(root, "Samples of " + flags.model, flags.to);
  const os::Path to = std::filesystem::absolute(flags.to).lexically_normal();
  TRY(const auto format, cli::export_format(to));
  if (!format) {
    TRY_VOID(cli::export_folder(fs, root, to));
  } else {
    TRY(os::NewFile file, os::NewFile::create(to));
    TRY_VOID(cli::export_archive(fs, root, *format,
                                 [&file](std::string_view bytes) { return file.write(bytes); }));
    TRY_VOID(file.keep());
  }
  std::printf("samples exported to %s\n", flags.to.c_str());
  return {};
}

}  // namespace

void add_samples_commands(Program program) {
  Globals& globals = program.globals;
  Run& chosen = program.chosen;
  CLI::App* samples = program.parser.add_subcommand(
      "samples", "list, show, label and export the samples that this machine's nodes keep");
  samples->require_subcommand(1);
  const auto add = [&](const char* name, const char* what,
                       std::function<Status(const SampleFlags&)> run) {
    const auto flags = std::make_shared<SampleFlags>();
    CLI::App* command = samples->add_subcommand(name, what);
    command->add_option("model", flags->model,
                        "NAME or NAMESPACE/NAME of an InferenceModel or JointInferenceService");
    command->add_option("-n,--namespace", flags->ns, "namespace of the model")
        ->capture_default_str();
    command->add_option("--data-dir", flags->data_dir,
                        "data directory of `varda up`, or of the agent; default: that of "
                        "`varda up`");
    command->add_option("--node", flags->node, "node of `varda up`, if several keep samples");
    command->add_option("--spool", flags->spool, "directory of the samples, instead of MODEL");
    command->callback([&chosen, &globals, flags, run = std::move(run)] {
      chosen = [&globals, flags, run](const Context&) -> Status {
        TRY_VOID(set_up_logs(globals, log::Level::kWarn));
        if (!flags->spool.empty() && !flags->model.empty()) {  // the first word is an id
          flags->ids.insert(flags->ids.begin(), flags->model);
          flags->model.clear();
        }
        return run(*flags);
      };
    });
    return std::pair(command, flags);
  };
  const auto ls =
      add("ls", "list samples without a label, newest first, with scores and age", list_samples);
  ls.first->add_option("-o,--output", ls.second->output, "table or json")
      ->check(CLI::IsMember({"table", "json"}));

  const auto shown =
      add("show", "show samples: a picture in the terminal, and the facts; or a contact sheet",
          show_samples);
  shown.first->add_option("id", shown.second->ids,
                          "ids of samples, or their beginnings; none: the newest");
  shown.first->add_flag("--contact-sheet", shown.second->contact_sheet,
                        "write all pictures into one HTML file");
  shown.first->add_option("--to", shown.second->to, "the HTML file; default: samples.html");

  const auto labelling =
      add("label", "label samples: they move to the Dataset of the job that asks for them",
          label_samples);
  labelling.first
      ->add_option("id", labelling.second->ids,
                   "ids of samples, or their beginnings; the last one is the class")
      ->required();
  labelling.first->add_option("--predicted", labelling.second->predicted,
                              "also all samples whose best class is this one");

  const auto exported = add("export", "copy all samples with their facts", export_samples);
  exported.first
      ->add_option(
          "--to", exported.second->to,
          "a new folder, or a file .zip, .tar, .tar.gz, .tar.zst, or a contact sheet .html")
      ->required();
}

}  // namespace varda::app
