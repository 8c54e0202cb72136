#include "flags.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <vector>

#include "../config_file.h"
#include "../flag_checks.h"
#include "../help.h"
#include "base/text.h"
#include "codec/yaml.h"
#include "federated/rules.h"
#include "worker/model_directory.h"

namespace varda::aggregate {
namespace {

using codec::Json;

constexpr std::uint64_t kSettingsBytesMax = 1 << 20;

CLI::Validator duration_of_flag() {
  const auto check = [](const std::string& text) -> std::string {
    return varda::parse_duration(text) ? ""
                                       : "\"" + text + "\" is not a duration such as 90s or 5m";
  };
  return CLI::Validator([check](std::string& text) { return check(text); }, "");
}

void add_flags(CLI::App& parser, Flags& flags) {
  parser.add_option("--model", flags.model,
                    "ONNX or safetensors file, or directory of a model with model.yaml; required");
  parser.add_option("--out", flags.out,
                    "directory for the result; a stopped job continues there; required");
  parser.add_option("--listen", flags.listen, "address for clients; port 0 picks a free one")
      ->capture_default_str();
  parser.add_option("--admin", flags.admin,
                    "address of /healthz, /readyz, /metrics and /status; default: none");
  parser.add_option("--flower", flags.flower,
                    "address for clients of Flower (flwr), which need no names; default: none");
  parser.add_flag("--trust-clients", flags.trust_clients,
                  "take the name of a client from the header Varda-Client, which any program can "
                  "send; without this flag only streams of nodes have names");
  parser
      .add_option("--clients", flags.clients,
                  "number of expected clients: with so many the first round begins at once")
      ->check(CLI::Range(0, 100'000));
  parser
      .add_option("--lost-after", flags.lost_after,
                  "a client without a request for this long makes room for another")
      ->capture_default_str()
      ->check(duration_of_flag());
  parser.add_option("--threads", flags.threads, "of the aggregation; 0: one for each processor")
      ->check(CLI::Range(0, 1024));
  parser.add_flag("--worker", flags.worker,
                  "run in a pod of a FederatedLearningJob; the environment has the settings");
  const char* const rounds = "Settings of the rounds";
  parser
      .add_option("--settings", flags.settings,
                  "YAML file with the members of spec.federated; flags win over it")
      ->group(rounds);
  parser.add_option("--rounds", flags.rounds, "number of rounds")->group(rounds);
  parser.add_option("--mode", flags.mode, "sync or async")->group(rounds);
  parser
      .add_option("--aggregator", flags.aggregator,
                  "rule for the next model: " + join(federated::Rule::names()))
      ->group(rounds);
  parser
      .add_option("--quorum", flags.quorum,
                  "updates that a round needs at the deadline: a share up to 1, or a number from 2")
      ->check(app::finite_number())
      ->group(rounds);
  parser.add_option("--round-deadline", flags.round_deadline, "such as 90s or 10m")->group(rounds);
  parser.add_option("--minimum-clients", flags.minimum_clients, "a round needs so many updates")
      ->group(rounds);
  parser.add_option("--fraction", flags.fraction, "share of the clients in a round")
      ->check(app::finite_number())
      ->group(rounds);
  parser.add_option("--clients-per-round", flags.clients_per_round, "instead of --fraction")
      ->group(rounds);
  parser.add_option("--local-epochs", flags.local_epochs, "epochs of a client in a round")
      ->group(rounds);
  parser.add_option("--local-steps", flags.local_steps, "optimizer steps instead of epochs")
      ->group(rounds);
  parser.add_option("--proximal", flags.proximal, "FedProx: factor of the proximal term")
      ->check(app::finite_number())
      ->group(rounds);
  parser
      .add_option("--evaluate-every", flags.evaluate_every,
                  "rounds between evaluations by the clients; 0: none")
      ->group(rounds);
  parser.add_option("--encoding", flags.encoding, "of updates: dense, fp16, bf16, int8 or topk")
      ->group(rounds);
  parser
      .add_flag("--secure-aggregation", flags.secure_aggregation,
                "the aggregator sees sums of updates only; --settings has more")
      ->group(rounds);
  parser.add_option("--late", flags.late, "late updates: drop or fold")->group(rounds);
  parser.add_option("--seed", flags.seed, "of the choice of clients and of the training")
      ->group(rounds);
  parser.add_option("--log-format", flags.log_format, "text or json")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}));
  parser.add_option("--log-level", flags.log_level, "debug, info, warn or error")
      ->capture_default_str()
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
}

/// The first required flag that is absent, or "".
std::string problem_of(const Flags& flags) {
  if (flags.worker) return "";
  if (flags.model.empty()) return "--model is required: the model whose weights are trained";
  if (flags.out.empty()) return "--out is required: the directory for the result";
  return "";
}

int refuse(const std::string& why) {
  std::cerr << "varda-aggregate: " << why << "\n`varda-aggregate --help` lists the flags\n";
  return 2;
}

/// The object at `name`, created if absent.
Json& member(Json& settings, const char* name) {
  if (!settings[name].is_object()) settings.set(name, Json::object());
  return settings[name];
}

}  // namespace

Parsed parse_flags(int argc, char** argv) {
  Flags flags;
  CLI::App parser("Trains one model on the data of many clients: the server of a federated job.",
                  "varda-aggregate");
  parser.set_version_flag("-v,--version", "varda-aggregate " VARDA_VERSION, "print the version");
  parser.formatter(std::make_shared<app::HelpFormatter>(app::help_width()));
  parser.failure_message([](const CLI::App* app, const CLI::Error& error) {
    const std::vector<std::string> unknown = app->remaining();
    const std::string why = unknown.empty() ? error.what()
                            : unknown.front().starts_with('-')
                                ? "there is no flag " + unknown.front()
                                : "there is no argument \"" + unknown.front() + "\"";
    return "varda-aggregate: " + why + "\n`varda-aggregate --help` lists the flags\n";
  });
  std::string config;
  parser
      .add_option("--config", config,
                  "file with further flags, one NAME = VALUE a line; the command line wins over it")
      ->configurable(false);
  add_flags(parser, flags);
  try {
    app::parse_with_config(parser, std::vector<std::string>(argv + 1, argv + argc));
  } catch (const CLI::ParseError& e) {
    return {std::nullopt, parser.exit(e, std::cout, std::cerr) == 0 ? 0 : 2};
  }
  if (const std::string why = problem_of(flags); !why.empty()) return {std::nullopt, refuse(why)};
  return {std::move(flags), 0};
}

Result<Json> settings_of(os::FileSystem& fs, const Flags& flags) {
  Json settings = Json::object();
  if (!flags.settings.empty()) {
    TRY(const std::string text,
        worker::read_regular(fs, worker::followed(flags.settings), kSettingsBytesMax));
    TRY(settings, codec::parse_yaml(text).context(flags.settings));
    if (!settings.is_object())
      return Error(Code::kInvalid,
                   flags.settings + ": must be a mapping, the members of spec.federated");
  }
  const auto set = [&](const char* name, const auto& value) {
    if (value) settings.set(name, *value);
  };
  set("mode", flags.mode);
  set("rounds", flags.rounds);
  if (flags.aggregator) member(settings, "aggregator").set("name", *flags.aggregator);
  set("quorum", flags.quorum);
  set("roundDeadline", flags.round_deadline);
  set("minimumClients", flags.minimum_clients);
  set("fraction", flags.fraction);
  set("clientsPerRound", flags.clients_per_round);
  set("localEpochs", flags.local_epochs);
  set("localSteps", flags.local_steps);
  set("proximal", flags.proximal);
  if (flags.evaluate_every) member(settings, "evaluation").set("every", *flags.evaluate_every);
  if (flags.encoding) member(settings, "compression").set("encoding", *flags.encoding);
  if (flags.secure_aggregation) (void)member(settings, "secureAggregation");
  set("late", flags.late);
  set("seed", flags.seed);
  return settings;
}

}  // namespace varda::aggregate
