// artifacts: lists, verifies, pins and removes the models on a node's disk, also beside a running
// agent.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>

#include "artifact/inspect.h"
#include "artifact/store.h"
#include "base/text.h"
#include "codec/json.h"
#include "command.h"
#include "file_server_command.h"
#include "progress.h"

namespace varda::app {
namespace {

using artifact::Found;
using artifact::Mark;
using artifact::Verdict;
using codec::Json;

struct ArtifactFlags {
  std::string data_dir, output = "table";
  std::vector<std::string> digests;
  bool dry_run = false;
};

struct Place {
  os::Path artifacts, models, agent_lock;
};

Result<Place> place_of(const ArtifactFlags& flags) {
  if (flags.data_dir.empty()) return Error(Code::kInvalid, "--data-dir must not be empty");
  const os::Path data = std::filesystem::absolute(flags.data_dir).lexically_normal();
  Place place{data / "artifacts", data / "models", data / "agent.db.lock"};
  TRY(const auto existing, os::real_file_system().stat(place.artifacts));
  if (existing && existing->kind == os::FileKind::kDirectory) return place;
  std::string hint;
  if (const auto nodes = os::real_file_system().list(data / "nodes"); nodes.ok() && !nodes->empty())
    hint = "; the agents of `varda up` use " + (data / "nodes").string() + "/NAME/data";
  return Error(
      Code::kNotFound,
      data.string() + " is not the data directory of an agent: it has no artifacts" + hint);
}

std::string state_of(const Found& found) {
  if (!found.complete) return "Partial";
  if (found.damaged) return "Damaged";
  return "Complete";
}

std::string use_of(const Found& found) {
  std::string use;
  const auto add = [&use](bool is, const char* label) {
    if (is) use += (use.empty() ? "" : ",") + std::string(label);
  };
  add(found.exposed, "exposed");
  add(found.wanted, "wanted");
  add(found.pinned, "pinned");
  return use.empty() && found.complete ? "unused" : use;
}

void print_json(const Json& json) { std::printf("%s\n", codec::write_json_pretty(json).c_str()); }

std::set<codec::Sha256> complete(const std::vector<Found>& all) {
  std::set<codec::Sha256> out;
  for (const Found& found : all)
    if (found.complete) out.insert(found.digest);
  return out;
}

/// Finds artifacts by digest, or by a unique beginning of one. The prefix "sha256:" of other tools
/// is allowed.
Result<std::vector<codec::Sha256>> choose(const std::set<codec::Sha256>& all,
                                          const std::vector<std::string>& wanted) {
  constexpr std::string_view kAlgorithm = "sha256:";
  std::vector<codec::Sha256> out;
  for (const std::string& text : wanted) {
    const std::string digits =
        lower(text.starts_with(kAlgorithm) ? text.substr(kAlgorithm.size()) : text);
    if (digits.empty() || digits.size() > 64 ||
        digits.find_first_not_of("0123456789abcdef") != std::string::npos)
      return Error(
          Code::kInvalid,
          "\"" + text + "\" is not a digest: must be 64 hexadecimal digits, or the first few");
    std::vector<codec::Sha256> fits;
    for (const codec::Sha256& digest : all)
      if (digest.hex().starts_with(digits)) fits.push_back(digest);
    if (fits.empty())
      return Error(Code::kNotFound,
                   "there is no artifact " + text + "; `varda artifacts ls` lists all");
    if (fits.size() > 1)
      return Error(Code::kInvalid, text + " matches " + std::to_string(fits.size()) +
                                       " artifacts; write more digits");
    out.push_back(fits.front());
  }
  return out;
}

Status list(const ArtifactFlags& flags) {
  TRY(const Place place, place_of(flags));
  TRY(const auto all, artifact::inspect(os::real_file_system(), place.artifacts, place.models));
  if (flags.output == "json") {
    Json items = Json::array();
    for (const Found& found : all) {
      Json models = Json::array();
      for (const std::string& model : found.models) models.push_back(model);
      items.push_back(Json::object({{"sha256", found.digest.hex()},
                                    {"state", state_of(found)},
                                    {"bytes", static_cast<std::int64_t>(found.bytes)},
                                    {"exposed", found.exposed},
                                    {"wanted", found.wanted},
                                    {"pinned", found.pinned},
                                    {"models", std::move(models)}}));
    }
    print_json(Json::object({{"artifacts", std::move(items)}}));
    return {};
  }
  std::printf("%-16s %-9s %10s  %-22s %s\n", "DIGEST", "STATE", "SIZE", "USE", "MODELS");
  for (const Found& found : all) {
    const std::string models = join(found.models);
    std::printf("%-16s %-9s %10s  %-22s %s\n", found.digest.hex().substr(0, 16).c_str(),
                state_of(found).c_str(), human_bytes(found.bytes).c_str(), use_of(found).c_str(),
                models.c_str());
  }
  return {};
}

Status verify_all(const Context& ctx, const ArtifactFlags& flags) {
  TRY(const Place place, place_of(flags));
  TRY(const auto all, artifact::inspect(os::real_file_system(), place.artifacts, place.models));
  const std::set<codec::Sha256> installed = complete(all);
  TRY(std::vector<codec::Sha256> chosen, choose(installed, flags.digests));
  if (flags.digests.empty()) chosen.assign(installed.begin(), installed.end());
  std::size_t damaged = 0;
  Json items = Json::array();
  for (const codec::Sha256& digest : chosen) {
    TRY(const Verdict verdict,
        artifact::verify(ctx, os::real_file_system(), place.artifacts, digest));
    if (verdict.kind == Verdict::Kind::kMissing) continue;
    const char* verdict_name = verdict.kind == Verdict::Kind::kWhole     ? "whole"
                               : verdict.kind == Verdict::Kind::kDamaged ? "damaged"
                                                                         : "unknown";
    damaged += verdict.kind == Verdict::Kind::kDamaged ? 1 : 0;
    if (flags.output == "json") {
      Json differences = Json::array();
      for (const std::string& one : verdict.differences) differences.push_back(one);
      items.push_back(Json::object({{"sha256", digest.hex()},
                                    {"verdict", verdict_name},
                                    {"differences", std::move(differences)}}));
      continue;
    }
    std::printf("%s %s\n", digest.hex().substr(0, 16).c_str(), verdict_name);
    for (const std::string& one : verdict.differences) std::printf("  %s\n", one.c_str());
  }
  if (flags.output == "json") print_json(Json::object({{"artifacts", std::move(items)}}));
  if (damaged == 0) return {};
  return Error(Code::kCorrupt,
               std::to_string(damaged) +
                   " damaged; the agent downloads damaged artifacts again as soon as possible");
}

Status pin(const ArtifactFlags& flags, bool on) {
  TRY(const Place place, place_of(flags));
  os::FileSystem& fs = os::real_file_system();
  TRY(const auto all, artifact::inspect(fs, place.artifacts, place.models));
  std::set<codec::Sha256> installed = complete(all);
  // A pin may outlive its artifact, which may have been removed because of damage.
  if (!on) {
    TRY(const auto pinned, artifact::marked(fs, place.artifacts, Mark::kPinned));
    installed.insert(pinned.begin(), pinned.end());
  }
  TRY(const auto chosen, choose(installed, flags.digests));
  for (const codec::Sha256& digest : chosen) {
    TRY_VOID(on ? artifact::set_mark(fs, place.artifacts, digest, Mark::kPinned)
                : artifact::clear_mark(fs, place.artifacts, digest, Mark::kPinned));
    std::printf("%s %s\n", digest.hex().substr(0, 16).c_str(), on ? "pinned" : "unpinned");
  }
  return {};
}

class NoDownloads final : public net::HttpClient {
 public:
  Result<net::ClientResponse> send(const Context&, net::ClientRequest) override {
    return Error(Code::kUnavailable, "this command downloads nothing");
  }
};

Status collect(const ArtifactFlags& flags) {
  TRY(const Place place, place_of(flags));
  os::FileSystem& fs = os::real_file_system();
  TRY(const auto all, artifact::inspect(fs, place.artifacts, place.models));
  std::uint64_t bytes = 0;
  std::size_t unused = 0;  // counted apart from `bytes`: files may be empty
  for (const Found& found : all) {
    if (!found.unused()) continue;
    ++unused;
    bytes += found.bytes;
    std::printf("%s %s\n", found.digest.hex().substr(0, 16).c_str(),
                human_bytes(found.bytes).c_str());
  }
  if (flags.dry_run || unused == 0) {
    std::fprintf(stderr, unused == 0 ? "no artifact is unused\n" : "%s would be freed\n",
                 human_bytes(bytes).c_str());
    return {};
  }
  // The holder of the lock owns the store. A running agent collects itself: only the agent knows
  // which artifacts it will expose next.
  const auto lock = os::FileLock::acquire(place.agent_lock);
  if (!lock.ok()) {
    if (lock.error().code() != Code::kUnavailable) return lock.error();
    TRY_VOID(artifact::request_collection(fs, place.artifacts));
    std::fprintf(stderr, "the running agent will free %s within seconds\n",
                 human_bytes(bytes).c_str());
    return {};
  }
  NoDownloads http;
  TRY(const auto store, artifact::Store::open({.root = place.artifacts}, fs, http));
  TRY(auto protected_digests, artifact::read_protected(fs, place.artifacts));
  store->keep(std::move(protected_digests));
  TRY(const std::uint64_t freed, store->evict(UINT64_MAX));
  std::fprintf(stderr, "%s freed\n", human_bytes(freed).c_str());
  return {};
}

}  // namespace

void add_artifact_commands(Program program) {
  Globals& globals = program.globals;
  Run& chosen = program.chosen;
  CLI::App* artifacts = program.parser.add_subcommand(
      "artifacts",
      "list, verify and remove the artifacts of models on a node's disk; serve archives to nodes");
  artifacts->require_subcommand(1);
  const auto add = [&](const char* name, const char* what,
                       std::function<Status(const Context&, const ArtifactFlags&)> run) {
    const auto flags = std::make_shared<ArtifactFlags>();
    CLI::App* command = artifacts->add_subcommand(name, what);
    command
        ->add_option(
            "--data-dir", flags->data_dir,
            "data directory of the agent; for a node of `varda up`: DATA-DIR/nodes/NAME/data")
        ->required();
    command->callback([&chosen, &globals, flags, run = std::move(run)] {
      chosen = [&globals, flags, run](const Context& ctx) -> Status {
        TRY_VOID(set_up_logs(globals, log::Level::kWarn));
        return run(ctx, *flags);
      };
    });
    return std::pair(command, flags);
  };
  const auto output = [](const std::pair<CLI::App*, std::shared_ptr<ArtifactFlags>>& added) {
    added.first->add_option("-o,--output", added.second->output, "table or json")
        ->check(CLI::IsMember({"table", "json"}));
  };
  output(add("ls", "list artifacts and downloads in progress, with their users",
             [](const Context&, const ArtifactFlags& flags) { return list(flags); }));

  const auto verify = add(
      "verify",
      "read every byte and compare with the archive's content; exit code 1 if something is damaged",
      [](const Context& ctx, const ArtifactFlags& flags) { return verify_all(ctx, flags); });
  output(verify);
  verify.first->add_option("digest", verify.second->digests,
                           "SHA-256 of the archive, or its beginning; none: all");

  const auto gc =
      add("gc", "remove unused artifacts: in no model's folder, in no work list, and not pinned",
          [](const Context&, const ArtifactFlags& flags) { return collect(flags); });
  gc.first->add_flag("--dry-run", gc.second->dry_run, "only print what would be removed");

  for (const bool on : {true, false}) {
    const auto command =
        add(on ? "pin" : "unpin",
            on ? "keep an artifact even if it is unused" : "remove the pin of an artifact",
            [on](const Context&, const ArtifactFlags& flags) { return pin(flags, on); });
    command.first
        ->add_option("digest", command.second->digests, "SHA-256 of the archive, or its beginning")
        ->required();
  }
  add_serve_command(*artifacts, program);
}

}  // namespace varda::app
