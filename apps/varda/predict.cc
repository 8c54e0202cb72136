#include "predict.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "../flag_checks.h"
#include "api/ai/inference_model.h"
#include "api/sedna/joint_inference_service.h"
#include "cli/printer.h"
#include "duration.h"
#include "given_file.h"
#include "kube/config.h"
#include "meta/object.h"
#include "net/client.h"
#include "oip/client.h"
#include "os/file_system.h"
#include "predict_load.h"

namespace varda::app {
namespace {

using codec::Json;

struct PredictFlags {
  std::string model, ns, url, labels, output, report, wait;
  std::vector<std::string> images;
  std::size_t limit = 0;
  // A load:
  std::string duration, until_version, longest = "10m";
  std::size_t clients = 4;
  double rate = 0;
  std::vector<std::string> replicas;

  bool load() const { return !duration.empty() || !until_version.empty(); }
};

struct Where {
  std::string url, model_name;
};

/// Kinds that answer at a URL, in the order in which a bare name is looked for.
struct Served {
  const meta::Resource* resource;
  std::string_view word;  // as in WORD/NAME, also by its short name
  std::string_view short_word;
};

std::vector<Served> served_kinds() {
  return {{&api::InferenceModel::resource(), "inferencemodel", "im"},
          {&api::JointInferenceService::resource(), "jointinferenceservice", "jis"}};
}

/// The object of that name, and which kind it is.
Result<std::pair<Json, Served>> find_served(const Context& ctx, const kube::Client& client, const std::string& ns,
                                            std::string name) {
  std::vector<Served> kinds = served_kinds();
  if (const std::size_t slash = name.find('/'); slash != std::string::npos) {
    const std::string word = name.substr(0, slash);
    name = name.substr(slash + 1);
    std::erase_if(kinds, [&](const Served& kind) {
      return word != kind.word && word != kind.short_word && word != std::string(kind.word) + "s";
    });
    if (kinds.empty())
      return Error(Code::kInvalid,
                   "\"" + word + "\" answers no requests; what does is an inferencemodel or a jointinferenceservice");
  }
  std::optional<Error> first;
  for (const Served& kind : kinds) {
    auto object = client.get(ctx, *kind.resource, {ns, name});
    if (object.ok()) return std::pair(std::move(object).value(), kind);
    if (!first) first = object.error();
    if (object.error().code() != Code::kNotFound) break;
  }
  if (kinds.size() > 1 && first->code() == Code::kNotFound)
    return Error(Code::kNotFound, "there is no InferenceModel and no JointInferenceService \"" + name + "\" in namespace " + ns);
  return *first;
}

/// Where the model answers, by its status, or why it does not.
Result<Where> find_model(const Context& ctx, const Globals& globals, const PredictFlags& flags) {
  if (!flags.url.empty()) return Where{flags.url, flags.model};
  TRY(const kube::Config config, find_server(globals));
  const std::unique_ptr<kube::Client> client = kube::connect(config);
  TRY(const auto found, find_served(ctx, *client, flags.ns.empty() ? config.ns : flags.ns, flags.model));
  const auto& [object, kind] = found;
  const std::string& name = object.at("metadata/name").as_string();
  const std::string& url = object.at("status/url").as_string();
  if (url.empty()) {
    std::string why;
    for (const Json& condition : object.at("status/conditions").as_array()) {
      if (condition["type"].as_string() == "Ready")
        why = " (" + condition["reason"].as_string() + ": " + condition["message"].as_string() + ")";
    }
    return Error(Code::kUnavailable, kind.resource->kind + " " + name + " does not serve yet" + why + "; `varda wait " +
                                         std::string(kind.word) + "/" + name + " --for=condition=Ready` waits for it");
  }
  const std::string& model_name = object.at("spec/modelName").as_string();
  return Where{url, model_name.empty() ? name : model_name};
}

constexpr std::chrono::seconds kAnswerTimeout{30};
constexpr std::chrono::milliseconds kAskAgain{500};

double milliseconds(Duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); }

/// kUnavailable and what a server says that is still loading are over some day; a model that it never heard of may be on its way.
bool passes(Code code) { return code == Code::kUnavailable || code == Code::kTimeout || code == Code::kNotFound; }

/// Until there is a server that says what the model takes, for --wait.
Result<Where> find_ready(const Context& ctx, const Globals& globals, const PredictFlags& flags, net::HttpClient& http) {
  Context patient = ctx;
  if (!flags.wait.empty()) {
    TRY(const auto wait, parse_duration("--wait", flags.wait));
    patient = ctx.with_timeout(wait);
  }
  while (true) {
    auto where = find_model(patient, globals, flags);
    if (where.ok()) {
      const oip::Client client(http, where->url);
      const auto predictor = oip::Predictor::open(patient.with_timeout(kAnswerTimeout), client, where->model_name);
      if (predictor.ok()) return where;
      where = predictor.error().context(where->url);
    }
    if (flags.wait.empty() || patient.done() || !passes(where.error().code())) return where;
    if (!patient.sleep_for(kAskAgain).ok()) return where;
  }
}

struct Samples {
  std::vector<oip::Images> batches;
  std::vector<int> labels;  // none, or one for each image
};

Result<Samples> read_samples(const PredictFlags& flags) {
  auto& fs = os::real_file_system();
  Samples out;
  std::size_t count = 0;
  for (const std::string& path : flags.images) {
    TRY(const std::string bytes, os::read_file(fs, followed(path)));
    TRY(oip::Images images, oip::parse_images(bytes).context(path));
    count += images.count;
    out.batches.push_back(std::move(images));
  }
  if (count == 0) return Error(Code::kInvalid, "no images in the files given");
  if (flags.labels.empty()) return out;
  TRY(const std::string bytes, os::read_file(fs, followed(flags.labels)));
  TRY(out.labels, oip::parse_labels(bytes).context(flags.labels));
  if (out.labels.size() != count) {
    return Error(Code::kInvalid,
                 flags.labels + ": " + std::to_string(out.labels.size()) + " labels for " + std::to_string(count) + " images");
  }
  return out;
}

/// In place, and not by a rename: the file may be a mount, as the one is by which a container leaves a word in its pod's status.
Status write_report(const PredictFlags& flags, const Json& summary) {
  if (flags.report.empty()) return {};
  TRY(const auto file, os::real_file_system().open(flags.report, os::Open::kTruncate));
  return file->write(codec::write_json(summary) + "\n").context(flags.report);
}

Status load(const Context& ctx, const PredictFlags& flags, const Where& where, const std::vector<oip::Images>& batches) {
  LoadOptions options{.url = where.url, .model = where.model_name, .clients = flags.clients, .rate = flags.rate};
  options.until_version = flags.until_version;
  options.replicas = flags.replicas;
  if (!flags.duration.empty()) {
    TRY(options.duration, parse_duration("--duration", flags.duration));
  }
  TRY(options.longest, parse_duration("--longest", flags.longest));
  TRY(const LoadReport report, put_load(ctx, options, batches));
  const Json json = report.to_json();
  std::fputs(flags.output == "json" ? (codec::write_json_pretty(json) + "\n").c_str() : report.to_text().c_str(), stdout);
  return write_report(flags, json);
}

Status predict_each(const Context& ctx, const PredictFlags& flags, const Where& where, const Samples& samples,
                    net::HttpClient& http) {
  const oip::Client client(http, where.url);
  TRY(const oip::Predictor predictor, oip::Predictor::open(ctx, client, where.model_name).context(where.url));
  const std::vector<int>& labels = samples.labels;
  std::vector<std::vector<std::string>> rows = {{"IMAGE", "LABEL", "PROBABILITY", "LATENCY"}};
  if (!labels.empty()) rows[0].push_back("EXPECTED");
  Json predictions = Json::array();
  std::vector<double> latencies;
  std::size_t number = 0, correct = 0, hard = 0;
  std::string version;
  std::map<std::string, std::size_t> tiers;  // of a joint service, by who answered
  for (const oip::Images& images : samples.batches) {
    for (std::size_t i = 0; i < images.count && (flags.limit == 0 || number < flags.limit); ++i, ++number) {
      TRY(const oip::Prediction p,
          predictor.predict(ctx.with_timeout(kAnswerTimeout), images, i).context("image " + std::to_string(number)));
      version = p.version;
      latencies.push_back(milliseconds(p.latency));
      char probability[16], latency[24];
      std::snprintf(probability, sizeof probability, "%.3f", p.guess.probability);
      std::snprintf(latency, sizeof latency, "%.2f ms", latencies.back());
      std::vector<std::string> row = {std::to_string(number), p.guess.label, probability, latency};
      Json one = Json::object({{"index", std::uint64_t{number}},
                               {"label", p.guess.label},
                               {"probability", p.guess.probability},
                               {"latencyMs", latencies.back()}});
      if (!labels.empty()) {
        const bool right = static_cast<int>(p.guess.index) == labels[number];
        correct += right;
        row.push_back(std::to_string(labels[number]) + (right ? "" : "  wrong"));
        one.set("expected", labels[number]);
      }
      if (const std::string& tier = p.parameters["tier"].as_string(); !tier.empty()) {
        ++tiers[tier];
        hard += p.parameters["hard"].as_bool();
        row.push_back(tier);
        one.set("parameters", p.parameters);
      }
      rows.push_back(std::move(row));
      predictions.push_back(std::move(one));
    }
  }
  if (!tiers.empty()) rows[0].push_back("TIER");
  std::sort(latencies.begin(), latencies.end());
  const double p50 = latencies[latencies.size() / 2], p99 = latencies[latencies.size() * 99 / 100];
  const double accuracy = static_cast<double>(correct) / static_cast<double>(number);
  Json out =
      Json::object({{"model", where.model_name}, {"version", version}, {"url", where.url}, {"count", std::uint64_t{number}}});
  if (!labels.empty()) {
    out.set("correct", std::uint64_t{correct});
    out.set("accuracy", accuracy);
  }
  out.set("latencyMs", Json::object({{"p50", p50}, {"p99", p99}}));
  std::string by_tier;
  if (!tiers.empty()) {
    Json answered = Json::object();
    for (const auto& [tier, count] : tiers) {
      answered.set(tier, std::uint64_t{count});
      by_tier += (by_tier.empty() ? "" : ", ") + std::to_string(count) + " by " + tier;
    }
    out.set("answered", std::move(answered));
    out.set("hard", std::uint64_t{hard});
  }
  TRY_VOID(write_report(flags, out));
  if (flags.output == "json") {
    out.set("predictions", std::move(predictions));
    std::printf("%s\n", codec::write_json_pretty(out).c_str());
    return {};
  }
  std::fputs(cli::align(rows).c_str(), stdout);
  std::printf("%zu images, version %s of %s, latency p50 %.2f ms, p99 %.2f ms", number, version.c_str(), where.model_name.c_str(),
              p50, p99);
  if (!labels.empty()) std::printf(", accuracy %.4f (%zu right)", accuracy, correct);
  std::printf("\n");
  if (!tiers.empty()) std::printf("%zu hard; answered: %s\n", hard, by_tier.c_str());
  return {};
}

Status predict(const Context& ctx, const Globals& globals, const PredictFlags& flags) {
  TRY_VOID(set_up_logs(globals, log::Level::kWarn));
  if (!flags.output.empty() && flags.output != "json") return Error(Code::kInvalid, "-o takes json, not \"" + flags.output + "\"");
  if (!flags.replicas.empty() && !flags.load())
    return Error(Code::kInvalid, "--replica is of a load: give --duration or --until-version too");
  TRY(const Samples samples, read_samples(flags));
  const std::unique_ptr<net::HttpClient> http = net::make_client({});
  TRY(const Where where, find_ready(ctx, globals, flags, *http));
  return flags.load() ? load(ctx, flags, where, samples.batches) : predict_each(ctx, flags, where, samples, *http);
}

}  // namespace

void add_predict_command(Program program) {
  const auto flags = std::make_shared<PredictFlags>();
  Globals& globals = program.globals;
  Run& chosen = program.chosen;
  CLI::App* command = program.parser.add_subcommand("predict", "send images to a model; print label, probability and latency");
  command
      ->add_option(
          "model", flags->model,
          "name of an InferenceModel or a JointInferenceService, also as KIND/NAME (with --url: of the model at that server)")
      ->required();
  command->add_option("--images", flags->images, "IDX (MNIST's format), PNG or JPEG files")->required();
  command->add_option("--labels", flags->labels, "IDX file of the right answers; then accuracy is printed");
  command->add_option("--limit", flags->limit, "only the first N images; 0: all")->check(CLI::Range(0, 1'000'000'000));
  command->add_option("--url", flags->url, "ask this server instead of the model's status.url");
  command->add_option("-n,--namespace", flags->ns, "of the object");
  command->add_option("--wait", flags->wait, "for a server that does not answer yet, at most so long: 30s, 5m");
  command->add_option("--duration", flags->duration, "put a load on the model for so long, and report what became of the requests");
  command->add_option("--until-version", flags->until_version,
                      "load: --duration counts from when every client had an answer of that version");
  command->add_option("--longest", flags->longest, "load: ends after that in any case")->default_str(flags->longest);
  command->add_option("--clients", flags->clients, "load: at once; every second one takes a new connection for each request")
      ->check(CLI::Range(1, 1024))
      ->default_str("4");
  command->add_option("--rate", flags->rate, "load: requests a second of all clients; 0: as fast as answers come")
      ->check(CLI::Range(0.0, 1e6))
      ->check(finite_number())
      ->default_str("0");
  command->add_option("--replica", flags->replicas, "load: URL of a server behind the URL; the report says how many it answered")
      ->allow_extra_args(false);
  command->add_option("--report", flags->report, "also write the summary as JSON into this file");
  command->add_option("-o,--output", flags->output, "json");
  command->add_option("--kubeconfig", globals.kubeconfig, "where the object is; default: $KUBECONFIG, then that of `varda up`");
  command->callback(
      [&chosen, &globals, flags] { chosen = [&globals, flags](const Context& ctx) { return predict(ctx, globals, *flags); }; });
}

}  // namespace varda::app
