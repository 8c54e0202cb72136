// push, pull: models between a desk and a registry, with their Model.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "api/edgeai/model.h"
#include "artifact/fetch.h"
#include "artifact/pack.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/text.h"
#include "client_session.h"
#include "command.h"
#include "datadir/up_state.h"
#include "download_flags.h"
#include "download_lock.h"
#include "meta/object.h"
#include "net/client.h"
#include "net/url.h"
#include "progress.h"
#include "registry/client.h"
#include "registry_server.h"
#include "resolved_file.h"

namespace varda::app {
namespace {

using codec::Json;
using codec::Sha256;

constexpr std::size_t kReadBytes = 256 << 10;
constexpr std::size_t kDefaultVersionDigits = 12;  // as in a Model without version

struct PushFlags {
  SessionFlags session;
  std::string source, name, url, version, format, task, token_file, ca_file;
  std::vector<std::string> metrics, parents;
  bool no_model = false;
};

struct PullFlags {
  SessionFlags session;
  DownloadFlags download;
  std::string model, output, token_file;
  bool extract = false;
};

Result<std::string> read_token(const std::string& file) {
  if (file.empty()) return std::string();
  TRY(const std::string text,
      os::read_file(os::real_file_system(), followed(file)).context("--token-file"));
  return std::string(trim(text));
}

/// Takes the registry from the flags. Without flags, the kubeconfig determines the `varda up`.
Result<registry::Target> registry_of(const Globals& globals, const std::string& url,
                                     const std::string& token_file) {
  registry::Target target{.url = url, .token = ""};
  TRY(target.token, read_token(token_file));
  if (!url.empty()) return target;
  const char* const variable = std::getenv("KUBECONFIG");
  const os::Path kubeconfig = !globals.kubeconfig.empty() ? os::Path(globals.kubeconfig)
                              : variable != nullptr && *variable != '\0' ? os::Path(variable)
                                                                         : default_kubeconfig();
  const os::Path data_dir = std::filesystem::absolute(kubeconfig).parent_path();
  const auto state = datadir::read_state(data_dir);
  if (!state.ok() || !*state || (*state)->registry.empty() || (*state)->registry == "off")
    return Error(Code::kInvalid, "--registry is required: " + data_dir.string() +
                                     " is not the data directory of a `varda up` with a registry");
  target.url = "http://" + (*state)->registry;
  if (token_file.empty()) {
    TRY(target.token, registry_token(os::real_file_system(), data_dir));
  }
  return target;
}

Result<Sha256> digest_of(const Context& ctx, const os::Path& path) {
  TRY(const auto file, os::real_file_system().open(path, os::Open::kRead));
  codec::Sha256Stream stream;
  while (true) {
    TRY_VOID(ctx.check());
    TRY(const std::string bytes, file->read(kReadBytes));
    if (bytes.empty()) return stream.finish();
    stream.update(bytes);
  }
}

/// "name=0.97" pairs. Numbers become numbers in the registry, and texts in the Model.
Result<std::vector<std::pair<std::string, std::string>>> parse_metrics(
    const std::vector<std::string>& texts) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == text.size())
      return Error(Code::kInvalid, "--metric " + text + ": must be NAME=VALUE");
    out.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

/// The format of a Model without --format: "tar.gz" of a.tar.gz, "onnx" of a.onnx.
std::string format_of(const os::Path& path) {
  const std::string name = path.filename().string();
  for (const char* ending : {".tar.gz", ".tar.zst"})
    if (name.ends_with(ending)) return ending + 1;
  const std::string extension = path.extension().string();
  return extension.size() > 1 ? extension.substr(1) : "bin";
}

/// A file below the directory for temporary files, removed at the end.
class Scratch {
 public:
  static Result<Scratch> create() {
    std::error_code error;
    const os::Path parent = std::filesystem::temp_directory_path(error);
    std::string name = (parent / "varda-push-XXXXXX").string();
    if (error || ::mkdtemp(name.data()) == nullptr)
      return Error(Code::kUnavailable, "no temporary directory below " + parent.string());
    return Scratch(name);
  }
  Scratch(Scratch&& other) noexcept : directory_(std::exchange(other.directory_, {})) {}
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch() {
    std::error_code ignored;
    if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
  }
  os::Path file(const std::string& name) const { return directory_ / name; }

 private:
  explicit Scratch(os::Path directory) : directory_(std::move(directory)) {}
  os::Path directory_;
};

struct Pushed {
  std::string url, version, format;
  Sha256 digest;
  std::uint64_t bytes = 0, sent = 0;
  std::vector<std::pair<std::string, std::string>> metrics;
};

/// Creates the Model, or gives it this version. Its metrics are those of the version.
Status apply_model(const Context& ctx, const kube::Client& client, const std::string& ns,
                   const PushFlags& flags, const Pushed& pushed) {
  const meta::Resource& resource = api::Model::resource();
  Json spec = Json::object({{"modelUrl", pushed.url},
                            {"format", pushed.format},
                            {"sha256", pushed.digest.hex()},
                            {"size", pushed.bytes},
                            {"version", pushed.version}});
  if (!flags.task.empty()) spec.set("task", flags.task);
  if (!flags.parents.empty()) {
    Json parents = Json::array();
    for (const std::string& parent : flags.parents) parents.push_back(parent);
    spec.set("parents", std::move(parents));
  }
  const kube::ObjectKey key{ns, flags.name};
  const Json change = Json::object({{"spec", spec}});
  const auto patch = [&] {
    return client.patch(ctx, resource, key, kube::PatchType::kMerge, change);
  };
  auto stored = patch();
  if (!stored.ok() && stored.error().code() == Code::kNotFound) {
    stored = client.create(
        ctx, resource,
        Json::object({{"apiVersion", resource.group + "/" + resource.version},
                      {"kind", resource.kind},
                      {"metadata", Json::object({{"name", flags.name}, {"namespace", ns}})},
                      {"spec", spec}}));
    if (!stored.ok() && stored.error().code() == Code::kAlreadyExists) stored = patch();
  }
  if (!stored.ok()) return std::move(stored).error().context("model/" + flags.name);
  Json metrics = Json::array();
  for (const auto& [name, value] : pushed.metrics)
    metrics.push_back(Json::object({{"key", name}, {"value", value}}));
  const Json status = Json::object(
      {{"metrics", std::move(metrics)}, {"updateTime", meta::format_time(system_clock().wall())}});
  const auto reported = client.patch(ctx, resource, key, kube::PatchType::kMerge,
                                     Json::object({{"status", status}}), "status");
  if (!reported.ok()) return Error(reported.error()).context("status of model/" + flags.name);
  return {};
}

/// The file of the present version, which may have parts of the next one.
Result<std::optional<Sha256>> present_file(const Context& ctx, const kube::Client& client,
                                           const std::string& ns, const PushFlags& flags) {
  const auto object = client.get(ctx, api::Model::resource(), {ns, flags.name});
  if (!object.ok() &&
      (object.error().code() == Code::kNotFound || object.error().code() == Code::kForbidden))
    return std::optional<Sha256>();
  if (!object.ok()) return Error(object.error()).context("model/" + flags.name);
  const auto digest = Sha256::parse((*object)["spec"]["sha256"].as_string());
  return digest.ok() ? std::optional(*digest) : std::nullopt;
}

Result<Pushed> send(const Context& ctx, const Globals& globals, const std::string& ns,
                    const PushFlags& flags, const std::optional<Sha256>& base) {
  os::FileSystem& fs = os::real_file_system();
  if (const std::string wrong = meta::check_dns_subdomain(flags.name); !wrong.empty())
    return Error(Code::kInvalid, "--name " + flags.name + ": " + wrong);
  Pushed pushed;
  TRY(pushed.metrics, parse_metrics(flags.metrics));
  TRY(const registry::Target target, registry_of(globals, flags.url, flags.token_file));
  net::ClientOptions client_options;
  if (!flags.ca_file.empty()) {
    TRY(client_options.extra_ca_pem,
        os::read_file(fs, followed(flags.ca_file)).context("--ca-file"));
  }
  const std::unique_ptr<net::HttpClient> http = net::make_client(client_options);

  os::Path file = followed(std::filesystem::absolute(flags.source).lexically_normal());
  TRY(const auto info, fs.stat(file).context(flags.source));
  if (!info) return Error(Code::kNotFound, flags.source + ": there is no such file or directory");
  pushed.format = !flags.format.empty() ? flags.format : format_of(file);
  std::optional<Scratch> scratch;
  if (info->kind == os::FileKind::kDirectory) {
    TRY(const auto model, fs.stat(file / "model.onnx"));
    if (flags.format.empty()) pushed.format = model ? "onnx" : "tar";
    TRY(Scratch created, Scratch::create());
    scratch.emplace(std::move(created));
    // Without compression, so that the next version has parts in common.
    const os::Path archive = scratch->file("model.tar");
    TRY(const artifact::Packed packed,
        artifact::pack_to_file(ctx, fs, file,
                               {.format = codec::ArchiveFormat::kTar,
                                .framework = pushed.format == "onnx" ? "onnx" : ""},
                               archive)
            .context(flags.source));
    pushed.digest = packed.digest;
    pushed.bytes = packed.bytes;
    file = archive;
  } else {
    pushed.bytes = info->size_bytes;
    TRY(pushed.digest, digest_of(ctx, file).context(flags.source));
  }
  pushed.version =
      !flags.version.empty() ? flags.version : pushed.digest.hex().substr(0, kDefaultVersionDigits);
  pushed.url = registry::blob_url(target, pushed.digest);
  // The name at the end distinguishes a plain model file from an archive.
  if (!scratch) pushed.url += "/" + net::percent_encode(file.filename().string());

  registry::Version version{.digest = pushed.digest,
                            .size_bytes = pushed.bytes,
                            .format = pushed.format,
                            .lineage = flags.parents};
  for (const auto& [name, value] : pushed.metrics) {
    const auto number = codec::parse_json(value);
    version.metrics.set(name, number.ok() && number->is_number() ? *number : Json(value));
  }
  const registry::VersionKey key{ns, flags.name, pushed.version};
  {
    ProgressBar bar(flags.name);
    TRY_VOID(registry::upload(ctx, *http, target, fs, file, pushed.digest,
                              {.progress =
                                   [&](const registry::UploadProgress& progress) {
                                     pushed.sent = progress.sent;
                                     bar.update("uploading", progress.done, progress.total);
                                   },
                               .base = base}));
  }
  TRY_VOID(
      registry::put_version(ctx, *http, target, key, version).context("version " + pushed.version));
  return pushed;
}

void print_pushed(const PushFlags& flags, const Pushed& pushed) {
  std::fprintf(stderr, "pushed %s version %s: sent %s of %s\n", flags.name.c_str(),
               pushed.version.c_str(), human_bytes(pushed.sent).c_str(),
               human_bytes(pushed.bytes).c_str());
  std::printf("%s\n", pushed.url.c_str());
}

Status push(const Context& ctx, const Globals& globals, const PushFlags& flags) {
  if (flags.no_model) {
    TRY_VOID(set_up_logs(globals, log::Level::kWarn));
    TRY(const Pushed pushed,
        send(ctx, globals, flags.session.ns.empty() ? "default" : flags.session.ns, flags, {}));
    print_pushed(flags, pushed);
    return {};
  }
  return with_session(ctx, globals, flags.session,
                      [&](const Context& c, cli::Session& session) -> Status {
                        TRY(const auto base, present_file(c, session.client, session.ns, flags));
                        TRY(const Pushed pushed, send(c, globals, session.ns, flags, base));
                        TRY_VOID(apply_model(c, session.client, session.ns, flags, pushed));
                        print_pushed(flags, pushed);
                        return {};
                      });
}

/// The token of --token-file for the host of the URL.
class TokenCredentials final : public artifact::CredentialReader {
 public:
  explicit TokenCredentials(std::string token) : token_(std::move(token)) {}
  artifact::Outcome<artifact::Credentials> read(const Context&, const std::string&) override {
    artifact::Credentials out;
    out.token = token_;
    return out;
  }

 private:
  const std::string token_;
};

Status extract(const Context& ctx, net::HttpClient& http, const std::string& url,
               const Sha256& digest, const std::string& token, const os::Path& to) {
  TokenCredentials credentials(token);
  artifact::FetchOptions options;
  options.request = {
      .url = url, .credentials = token.empty() ? "" : "--token-file", .digest = digest};
  options.transport = {.credentials = &credentials, .trusting = nullptr, .rng = &system_rng()};
  options.to = to;
  TRY(const DownloadLock turn, DownloadLock::wait(ctx, to));
  ProgressBar bar(to.filename().string());
  const auto installed = artifact::fetch(
      ctx, os::real_file_system(), http, options, [&](const artifact::Progress& progress) {
        if (progress.phase == artifact::Phase::kDownload)
          bar.update("downloading and unpacking", progress.done, progress.total);
      });
  bar.clear();
  if (!installed.ok()) return Error(installed.error().error);
  return {};
}

/// Appends the rest of the URL's bytes to the file.
Status download_rest(const Context& ctx, net::HttpClient& http, const std::string& url,
                     const std::string& token, os::File& file, ProgressBar& bar) {
  TRY(std::uint64_t held, file.size());
  TRY_VOID(file.seek(held));
  net::ClientRequest request{.method = "GET",
                             .url = url,
                             .headers = registry::headers_of({.url = "", .token = token}),
                             .body = ""};
  if (held > 0) request.headers.add("Range", "bytes=" + std::to_string(held) + "-");
  TRY(const auto response, http.send(ctx, std::move(request)));
  if (response.status == 416) return {};  // the file is complete, or too long: the digest decides
  if (response.status == 200 && held > 0) {
    TRY_VOID(file.truncate(0));
    TRY_VOID(file.seek(0));
    held = 0;
  } else if (response.status != 200 && response.status != 206) {
    const bool later = response.status >= 500 || response.status == 429;
    return Error(later ? Code::kUnavailable : Code::kNotFound,
                 url + " answered " + std::to_string(response.status));
  }
  const std::uint64_t length =
      parse_integer<std::uint64_t>(response.headers.find("Content-Length").value_or(""))
          .value_or(0);
  const std::uint64_t total = held + length;
  while (true) {
    TRY(const auto bytes, response.body->read());
    if (!bytes) return {};
    TRY_VOID(file.write(*bytes));
    held += bytes->size();
    bar.update("downloading", held, total);
  }
}

/// The ending of a file without a name of its own. Archives have the format of their content, such
/// as onnx.
Result<std::string> ending_of(os::File& file, const std::string& format) {
  constexpr std::size_t kBytes = 262;  // a tar header up to its magic
  TRY_VOID(file.seek(0));
  TRY(const std::string begin, file.read(kBytes));
  if (begin.starts_with("\x1f\x8b")) return std::string(".tar.gz");
  if (begin.starts_with("\x28\xb5\x2f\xfd")) return std::string(".tar.zst");
  if (begin.size() == kBytes && begin.ends_with("ustar")) return std::string(".tar");
  return "." + format;
}

/// Downloads into `output`, or into NAME.ENDING here. Returns the path.
Result<os::Path> download(const Context& ctx, net::HttpClient& http, const api::Model& model,
                          const Sha256& digest, const std::string& token,
                          const std::string& output) {
  constexpr int kAttempts = 5;
  os::FileSystem& fs = os::real_file_system();
  const std::string& url = model.spec.url;
  os::Path to = std::filesystem::absolute(output.empty() ? model.metadata.name : output);
  const os::Path part = to.string() + "." + digest.hex().substr(0, kDefaultVersionDigits) + ".part";
  TRY(const auto file, fs.open(part, os::Open::kCreate));
  ProgressBar bar(to.filename().string());
  for (int attempt = 1;; ++attempt) {
    const Status received = download_rest(ctx, http, url, token, *file, bar);
    if (received.ok()) break;
    if (received.error().code() != Code::kUnavailable || attempt == kAttempts)
      return received.error();
    TRY_VOID(ctx.sleep_for(std::chrono::seconds(attempt)));
  }
  bar.clear();
  TRY_VOID(file->sync());
  TRY(const Sha256 found, digest_of(ctx, part));
  if (found != digest) {
    TRY_VOID(fs.remove(part));
    return Error(Code::kCorrupt, url + " has the SHA-256 " + found.hex() + ", not " + digest.hex());
  }
  if (output.empty()) {
    TRY(const std::string ending, ending_of(*file, model.spec.format));
    to += ending;
  }
  TRY_VOID(fs.rename(part, to));
  TRY_VOID(fs.sync_directory(to.parent_path()));
  return to;
}

Status pull(const Context& ctx, const Globals& globals, const PullFlags& flags) {
  return with_session(
      ctx, globals, flags.session, [&](const Context& c, cli::Session& session) -> Status {
        TRY(const Json object,
            session.client.get(c, api::Model::resource(), {session.ns, flags.model}));
        TRY(const api::Model model, api::Model::from_json(object));
        TRY(const Sha256 digest,
            Sha256::parse(model.spec.sha256).context("spec.sha256 of model/" + flags.model));
        TRY(std::string token, read_token(flags.token_file));
        DownloadFlags download_flags = flags.download;
        // The registry of `varda up` is usually on a loopback address.
        const auto own = registry_of(globals, "", flags.token_file);
        if (own.ok() && model.spec.url.starts_with(own->url + "/")) {
          TRY(const net::Url url, net::Url::parse(own->url));
          download_flags.allow_sources.push_back(url.host);
          token = own->token;
        }
        TRY(const net::ClientOptions options, download_client_options(download_flags));
        const std::unique_ptr<net::HttpClient> http = net::make_client(options);
        if (!flags.extract) {
          TRY(const os::Path to, download(c, *http, model, digest, token, flags.output));
          std::printf("%s\n", to.c_str());
          return {};
        }
        os::Path to = std::filesystem::absolute(flags.output.empty() ? flags.model : flags.output)
                          .lexically_normal();
        if (!to.has_filename()) to = to.parent_path();  // a slash at the end
        TRY_VOID(extract(c, *http, model.spec.url, digest, token, to));
        std::printf("%s\n", to.c_str());
        return {};
      });
}

}  // namespace

void add_push_commands(Program program) {
  Globals& globals = program.globals;
  Run& chosen = program.chosen;

  const auto push_flags = std::make_shared<PushFlags>();
  CLI::App* command = program.parser.add_subcommand(
      "push", "upload a file or directory to a registry as a version of a Model");
  command->add_option("source", push_flags->source, "file, or directory that becomes an archive")
      ->required();
  command->add_option("--name", push_flags->name, "name of the Model, created if missing")
      ->required();
  command->add_option("--registry", push_flags->url,
                      "URL of the registry; default: that of `varda up`");
  command->add_option("--kubeconfig", globals.kubeconfig, kKubeconfigHelp);
  command->add_option("-n,--namespace", push_flags->session.ns,
                      "namespace; default: the kubeconfig's, else \"default\"");
  command->add_option("--version", push_flags->version,
                      "version; default: the first 12 digits of the SHA-256");
  command->add_option("--format", push_flags->format,
                      "format of the Model; default: onnx for a directory with model.onnx, else "
                      "the file's ending");
  command->add_option("--task", push_flags->task, "task of the Model");
  command
      ->add_option("--metric", push_flags->metrics,
                   "NAME=VALUE, such as accuracy=0.97 (repeatable)")
      ->allow_extra_args(false);
  command
      ->add_option("--parent", push_flags->parents,
                   "Model from which this one was made (repeatable)")
      ->allow_extra_args(false);
  command->add_option("--token-file", push_flags->token_file,
                      "file with the registry's token; default: that of `varda up` without "
                      "--registry, else none");
  command->add_option("--ca-file", push_flags->ca_file,
                      "PEM certificates to trust, in addition to the machine's");
  command->add_flag("--no-model", push_flags->no_model, "only upload: no server, no Model");
  command->callback([&chosen, &globals, push_flags] {
    chosen = [&globals, push_flags](const Context& ctx) { return push(ctx, globals, *push_flags); };
  });

  const auto pull_flags = std::make_shared<PullFlags>();
  CLI::App* pull_command =
      program.parser.add_subcommand("pull", "download the file of a Model and check its SHA-256");
  pull_command->add_option("model", pull_flags->model, "name of the Model")->required();
  pull_command->add_option("--kubeconfig", globals.kubeconfig, kKubeconfigHelp);
  pull_command->add_option("-n,--namespace", pull_flags->session.ns,
                           "namespace; default: the kubeconfig's, else \"default\"");
  pull_command->add_option("-o,--output", pull_flags->output,
                           "file or directory to create; default: NAME with the ending of its "
                           "content, or NAME if extracted");
  pull_command->add_flag("--extract", pull_flags->extract, "unpack the archive into a directory");
  pull_command->add_option("--token-file", pull_flags->token_file,
                           "file with the registry's token; default: none");
  add_download_flags(*pull_command, pull_flags->download);
  pull_command->callback([&chosen, &globals, pull_flags] {
    chosen = [&globals, pull_flags](const Context& ctx) { return pull(ctx, globals, *pull_flags); };
  });
}

}  // namespace varda::app
