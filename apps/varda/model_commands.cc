// pack, fetch, predict and models: commands for models.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string_view>

#include "artifact/fetch.h"
#include "artifact/pack.h"
#include "base/rng.h"
#include "cli/models.h"
#include "client_session.h"
#include "command.h"
#include "download_flags.h"
#include "download_lock.h"
#include "limit_flags.h"
#include "net/client.h"
#include "predict.h"
#include "progress.h"
#include "serving/config.h"

namespace varda::app {
namespace {

struct PackFlags {
  std::string directory, output, version, framework = "onnx", url;
};

/// Checks the rules of an InferenceModel, so that the printed entry can be applied.
Status check_version(const std::string& version) {
  const bool good =
      !version.empty() && version.size() <= 63 && version != "." && version != ".." &&
      version.find_first_not_of(
          "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == std::string::npos;
  if (good) return {};
  return Error(Code::kInvalid, "\"" + version +
                                   "\" is not a valid version; set --version-name to 1 to 63 "
                                   "letters, digits, '.', '_' or '-'");
}

/// Reads model.yaml and labels like the model server, to report errors early.
Status check_settings(const os::Path& directory) {
  auto& fs = os::real_file_system();
  TRY(const auto settings, fs.stat(directory / "model.yaml"));
  if (!settings) return {};
  TRY([[maybe_unused]] const serving::ModelConfig config,
      serving::read_config(fs, directory, {}).context(directory.string()));
  return {};
}

Status pack(const Context& ctx, const PackFlags& flags) {
  os::Path directory = std::filesystem::absolute(flags.directory).lexically_normal();
  if (!directory.has_filename()) directory = directory.parent_path();  // a slash at the end
  const bool is_file = std::filesystem::is_regular_file(directory);
  const std::string name = (is_file ? directory.stem() : directory.filename()).string();
  constexpr std::string_view kOfVardaServe[] = {"onnx", "pb", "caffe", "darknet"};
  if (!is_file &&
      std::count(std::begin(kOfVardaServe), std::end(kOfVardaServe), flags.framework) > 0)
    TRY_VOID(check_settings(directory));
  const std::string version = !flags.version.empty() ? flags.version : name;
  TRY_VOID(check_version(version));
  const os::Path output =
      flags.output.empty() ? os::Path(name + ".tar.gz") : os::Path(flags.output);
  TRY(const codec::ArchiveFormat format, artifact::archive_format_of(output));
  TRY(const artifact::Packed packed,
      artifact::pack_to_file(ctx, os::real_file_system(), directory,
                             {.format = format, .framework = flags.framework}, output));
  const std::string url =
      !flags.url.empty() ? flags.url : "http://HOST/" + output.filename().string();
  std::fprintf(stderr, "packed %zu file%s, %s, into %s (%s)\n", packed.files,
               packed.files == 1 ? "" : "s", human_bytes(packed.extracted_bytes).c_str(),
               output.c_str(), human_bytes(packed.bytes).c_str());
  if (packed.chunk_list_bytes > 0)
    std::fprintf(stderr, "serve %s.chunks (%s) beside it, and nodes download only what changed\n",
                 output.filename().c_str(), human_bytes(packed.chunk_list_bytes).c_str());
  std::fprintf(stderr, "entry for spec.manifest:\n");
  std::printf("- {version: '%s', downloadURL: '%s', sha256sum: %s}\n", version.c_str(), url.c_str(),
              packed.digest.hex().c_str());
  return {};
}

struct FetchFlags {
  std::string url, sha256, to, framework, credentials_dir;
  std::vector<std::string> mirrors;
  std::vector<std::string> file_roots, extra_files, bases;
  DownloadFlags download;
  artifact::Limits limits;
  bool insecure = false;
  bool no_spool = false;
  int attempts = artifact::FetchOptions{}.attempts_max;
};

Status fetch(const Context& ctx, const Globals& globals, const FetchFlags& flags) {
  TRY_VOID(set_up_logs(globals, log::Level::kInfo));
  TRY(const codec::Sha256 digest, codec::Sha256::parse(flags.sha256).context("--sha256"));
  if (flags.to.empty()) return Error(Code::kInvalid, "--to must not be empty");
  TRY(net::ClientOptions client_options, download_client_options(flags.download));
  client_options.tls.verify = !flags.insecure;
  const std::unique_ptr<net::HttpClient> http = net::make_client(client_options);
  artifact::FetchOptions options;
  options.request = {.url = flags.url,
                     .mirrors = flags.mirrors,
                     .credentials = flags.credentials_dir,
                     .digest = digest,
                     .framework = flags.framework};
  DirectoryCredentials credentials;
  options.transport = {.credentials = &credentials,
                       .trusting =
                           [&client_options](const std::string& ca_pem) {
                             net::ClientOptions trusting = client_options;
                             trusting.extra_ca_pem += "\n" + ca_pem;
                             return net::make_client(trusting);
                           },
                       .rng = &system_rng()};
  options.to = flags.to;
  for (const std::string& name : flags.extra_files) {
    if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos)
      return Error(Code::kInvalid,
                   "--extra-file " + name +
                       ": must be a file name that has no / and does not begin with a dot");
  }
  options.extra_files = flags.extra_files;
  options.limits = flags.limits;
  options.spooled = !flags.no_spool;
  options.attempts_max = flags.attempts;
  for (const std::string& root : flags.file_roots) options.file_roots.emplace_back(root);
  for (const std::string& base : flags.bases) options.bases.emplace_back(base);
  TRY(const DownloadLock turn, DownloadLock::wait(ctx, flags.to));
  ProgressBar bar(os::Path(flags.to).filename().string());
  const auto installed = artifact::fetch(
      ctx, os::real_file_system(), *http, options, [&](const artifact::Progress& progress) {
        // Both phases run at once; only the download knows its total.
        if (progress.phase == artifact::Phase::kDownload)
          bar.update("downloading and unpacking", progress.done, progress.total);
      });
  bar.clear();
  if (!installed.ok()) {
    const artifact::Failure& failure = installed.error();
    return Error(failure.error).context(artifact::to_string(failure.reason));
  }
  log::info("version installed",
            {{"directory", flags.to}, {"sha256", flags.sha256}, {"received", installed->received}});
  return {};
}

struct ListFlags {
  SessionFlags session;
  std::string output;
  cli::ListModelsOptions options;
  bool no_headers = false;
};

void add_models_command(Program program) {
  Globals& globals = program.globals;
  Run& chosen = program.chosen;
  CLI::App* models =
      program.parser.add_subcommand("models", "list and filter the Models of the server");
  models->require_subcommand(1);

  const auto flags = std::make_shared<ListFlags>();
  CLI::App* command =
      models->add_subcommand("ls", "list Models of both groups by task, labels and metrics");
  command->add_option("--kubeconfig", globals.kubeconfig, kKubeconfigHelp);
  command->add_option("-n,--namespace", flags->session.ns,
                      "namespace; default: the kubeconfig's, else \"default\"");
  command->add_flag("-A,--all-namespaces", flags->session.all_namespaces, "in every namespace");
  command
      ->add_option("--where", flags->options.where,
                   "only Models that match NAME OPERATOR VALUE, such as accuracy>=0.9 or "
                   "task=classification (repeatable; all must match). "
                   "NAME is a metric, or name, namespace, group, task, format, version, url, "
                   "sourceJob, size, label, parent, metadata.KEY")
      ->allow_extra_args(false);
  cli::ModelShorthands& shorthands = flags->options.shorthands;
  command->add_option("--task", shorthands.task, "only Models of this task: --where task=TASK");
  command->add_option("--metric", shorthands.metric, "metric of --min and --max");
  command->add_option("--min", shorthands.min,
                      "only Models with at least this value of --metric: --where METRIC>=MIN");
  command->add_option("--max", shorthands.max, "only Models with at most this value of --metric");
  command->add_option("--sort-by", flags->options.sort_by,
                      "NAME, NAME:asc or NAME:desc, such as accuracy:desc");
  command->add_option("-l,--selector", flags->options.label_selector, "label selector");
  command->add_option("-o,--output", flags->output,
                      "table (default), wide, yaml, json, name or jsonpath=TEMPLATE");
  command->add_flag("--no-headers", flags->no_headers, "only the rows");
  command->callback([&chosen, &globals, flags] {
    chosen = [&globals, flags](const Context& ctx) -> Status {
      TRY(flags->options.output, cli::Output::parse(flags->output == "table" ? "" : flags->output));
      flags->options.headers = !flags->no_headers;
      return with_session(ctx, globals, flags->session,
                          [&](const Context& c, cli::Session& session) {
                            return cli::list_models(c, session, flags->options);
                          });
    };
  });
}

}  // namespace

void add_model_commands(Program program) {
  Globals& globals = program.globals;
  Run& chosen = program.chosen;

  const auto pack_flags = std::make_shared<PackFlags>();
  CLI::App* pack_command = program.parser.add_subcommand(
      "pack", "pack a model directory reproducibly and print its manifest entry");
  pack_command
      ->add_option("directory", pack_flags->directory,
                   "directory with the model (for onnx: model.onnx), or a single .onnx file")
      ->required();
  pack_command->add_option(
      "-o,--output", pack_flags->output,
      "archive to write: .tar.gz, .tar.zst or .tar; default: NAME.tar.gz here");
  pack_command->add_option("--version-name", pack_flags->version,
                           "version in the entry; default: the directory's name, or the file's");
  pack_command->add_option("--url", pack_flags->url, "downloadURL in the entry");
  pack_command
      ->add_option("--framework", pack_flags->framework,
                   "the content must have the layout of this framework; \"\" checks nothing")
      ->default_str("onnx");
  pack_command->callback([&chosen, pack_flags] {
    chosen = [pack_flags](const Context& ctx) { return pack(ctx, *pack_flags); };
  });

  const auto fetch_flags = std::make_shared<FetchFlags>();
  CLI::App* fetch_command = program.parser.add_subcommand(
      "fetch", "download, verify and unpack one version into a directory");
  fetch_command->add_option("--url", fetch_flags->url, "http, https, s3 or file URL of the archive")
      ->required();
  fetch_command->add_option("--mirror", fetch_flags->mirrors,
                            "further URL of the same archive, tried when the previous URLs fail");
  fetch_command->add_option("--credentials-dir", fetch_flags->credentials_dir,
                            "directory with credentials for the sources, one file per key like a "
                            "mounted Secret: hosts, username and password, "
                            "token, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, ca.crt ...");
  add_download_flags(*fetch_command, fetch_flags->download);
  fetch_command
      ->add_option("--sha256", fetch_flags->sha256,
                   "digest of the archive, 64 lower-case hex digits")
      ->required();
  fetch_command
      ->add_option("--to", fetch_flags->to,
                   "directory to create; it appears only after the whole version is verified")
      ->required();
  fetch_command->add_option("--extra-file", fetch_flags->extra_files,
                            "file at the archive's root to expose next to the directory too, such "
                            "as config.pbtxt (repeatable)");
  fetch_command
      ->add_option(
          "--base", fetch_flags->bases,
          "directory of another version: if the archive has a .chunks file beside it, only "
          "the parts that this directory lacks are downloaded (repeatable); an earlier "
          "version in the directory of --to is used too")
      ->allow_extra_args(false);
  fetch_command->add_option("--framework", fetch_flags->framework,
                            "the content must have the layout of this framework");
  fetch_command->add_option("--allow-files-below", fetch_flags->file_roots,
                            "allow file URLs below this directory; default: none");
  add_limit_flags(*fetch_command, fetch_flags->limits);
  fetch_command->add_flag("--insecure-skip-tls-verify", fetch_flags->insecure,
                          "do not check the server's certificate (the digest is always checked)");
  fetch_command
      ->add_option("--attempts", fetch_flags->attempts,
                   "attempts over all sources while transient errors last, 1 s to 30 s apart")
      ->check(CLI::PositiveNumber);
  fetch_command->add_flag("--no-spool", fetch_flags->no_spool,
                          "do not keep unfinished downloads: writes half the bytes, but a killed "
                          "fetch starts over (broken connections still resume)");
  fetch_command->callback([&chosen, &globals, fetch_flags] {
    chosen = [&globals, fetch_flags](const Context& ctx) {
      return fetch(ctx, globals, *fetch_flags);
    };
  });

  add_predict_command(program);
  add_models_command(program);
}

}  // namespace varda::app
