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
#include "codec/digest.h"
#include "duration.h"
#include "kube/config.h"
#include "meta/object.h"
#include "meta/resources.h"
#include "model_access.h"
#include "net/certificates.h"
#include "net/client.h"
#include "oip/client.h"
#include "oip/load.h"
#include "os/file_system.h"
#include "predict_tensors.h"
#include "resolved_file.h"

namespace varda::app {
namespace {

using codec::Json;

struct PredictFlags {
  std::string model, ns, url, labels, output, report, wait;
  std::vector<std::string> images, inputs;
  std::string json;
  std::size_t limit = 0;
  // Flags of a load:
  std::string duration, until_version, longest = "10m";
  std::size_t clients = 4;
  double rate = 0;
  std::vector<std::string> replicas;
  ModelAccessFlags access;

  bool load() const { return !duration.empty() || !until_version.empty(); }
};

struct Where {
  std::string url, model_name;
  std::string ca_pem;  // of the model's Secret; "" if unknown
};

/// The authority of a closed model's certificate, as its Secret names it. "": the Secret has none,
/// or this user may not read it.
std::string authority_of(const Context& ctx, const kube::Client& client, const Json& object) {
  const Json& security = object.at("spec/security");
  std::string name = security["tlsSecretName"].as_string();
  if (name.empty() && security["tls"].as_bool())
    name = api::issued_secret(object.at("metadata/name").as_string());
  if (name.empty()) return {};
  const auto secret =
      client.get(ctx, meta::core::secrets(), {object.at("metadata/namespace").as_string(), name});
  if (!secret.ok()) return {};
  const std::string pem = codec::unbase64(secret->at("data")["ca.crt"].as_string()).value_or("");
  return net::certificate_facts(pem).ok() ? pem : "";
}

/// A kind of objects that answer requests at a URL.
struct Served {
  const meta::Resource* resource;
  std::string_view type;  // the KIND of KIND/NAME; its plural works too
  std::vector<std::string_view> short_types;
};

/// A name without a kind is looked up in this order.
std::vector<Served> served_kinds() {
  return {{&api::InferenceModel::resource(), "inferencemodel", {"im"}},
          {&api::JointInferenceService::resource(), "jointinferenceservice", {"jis", "ji"}}};
}

/// Finds the object and its kind by NAME or KIND/NAME.
Result<std::pair<Json, Served>> find_served(const Context& ctx, const kube::Client& client,
                                            const std::string& ns, std::string name) {
  std::vector<Served> kinds = served_kinds();
  if (const std::size_t slash = name.find('/'); slash != std::string::npos) {
    const std::string type = name.substr(0, slash);
    name = name.substr(slash + 1);
    std::erase_if(kinds, [&](const Served& kind) {
      return type != kind.type && type != std::string(kind.type) + "s" &&
             std::find(kind.short_types.begin(), kind.short_types.end(), type) ==
                 kind.short_types.end();
    });
    if (kinds.empty())
      return Error(
          Code::kInvalid,
          "\"" + type +
              "\" does not answer requests; must be an inferencemodel or a jointinferenceservice");
  }
  std::optional<Error> first;
  for (const Served& kind : kinds) {
    auto object = client.get(ctx, *kind.resource, {ns, name});
    if (object.ok()) return std::pair(std::move(object).value(), kind);
    if (!first) first = object.error();
    if (object.error().code() != Code::kNotFound) break;
  }
  if (kinds.size() > 1 && first->code() == Code::kNotFound)
    return Error(Code::kNotFound, "there is no InferenceModel and no JointInferenceService \"" +
                                      name + "\" in namespace " + ns);
  return *first;
}

/// Returns --url, or the URL in the object's status. kUnavailable: the model does not serve yet.
Result<Where> find_model(const Context& ctx, const Globals& globals, const PredictFlags& flags) {
  if (!flags.url.empty()) return Where{flags.url, flags.model, ""};
  TRY(const kube::Config config, find_server(globals));
  const std::unique_ptr<kube::Client> client = kube::connect(config);
  TRY(const auto found,
      find_served(ctx, *client, flags.ns.empty() ? config.ns : flags.ns, flags.model));
  const auto& [object, kind] = found;
  const std::string& name = object.at("metadata/name").as_string();
  const std::string& url = object.at("status/url").as_string();
  if (url.empty()) {
    std::string why;
    for (const Json& condition : object.at("status/conditions").as_array()) {
      if (condition["type"].as_string() == "Ready")
        why =
            " (" + condition["reason"].as_string() + ": " + condition["message"].as_string() + ")";
    }
    return Error(Code::kUnavailable, kind.resource->kind + " " + name + " does not serve yet" +
                                         why + "; `varda wait " + std::string(kind.type) + "/" +
                                         name + " --for=condition=Ready` waits for it");
  }
  const std::string& model_name = object.at("spec/modelName").as_string();
  Where where{url, model_name.empty() ? name : model_name, ""};
  if (flags.access.ca_file.empty()) where.ca_pem = authority_of(ctx, *client, object);
  return where;
}

constexpr std::chrono::seconds kAnswerTimeout{30};
constexpr std::chrono::milliseconds kRetryPeriod{500};

double milliseconds(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

/// Whether another attempt may succeed: the server may still start or load, the object may not
/// exist yet.
bool passes(Code code) {
  return code == Code::kUnavailable || code == Code::kTimeout || code == Code::kNotFound;
}

/// Returns a server that describes the model's inputs. With --wait, retries while passes() is true.
/// Adds the authority of the model to `access`.
Result<Where> find_ready(const Context& ctx, const Globals& globals, const PredictFlags& flags,
                         ModelAccess& access) {
  Context patient = ctx;
  if (!flags.wait.empty()) {
    TRY(const auto wait, parse_duration("--wait", flags.wait));
    patient = ctx.with_timeout(wait);
  }
  while (true) {
    auto where = find_model(patient, globals, flags);
    if (where.ok()) {
      if (!where->ca_pem.empty()) access.ca_pem = where->ca_pem;
      const std::unique_ptr<net::HttpClient> http = make_model_client(access);
      const oip::Client client(*http, where->url);
      const auto metadata =
          client.metadata(patient.with_timeout(kAnswerTimeout), where->model_name);
      if (metadata.ok()) return where;
      where = metadata.error().context(where->url);
    }
    if (flags.wait.empty() || patient.done() || !passes(where.error().code())) return where;
    if (!patient.sleep_for(kRetryPeriod).ok()) return where;
  }
}

struct Samples {
  std::vector<oip::Images> batches;
  std::vector<std::string> files;    // one for each batch
  std::vector<int> labels;           // none, or one for each image
  std::vector<std::string> damaged;  // files that are no images

  /// "cat.png" for a single image. For a file of several images, "7" if it is the only file, else
  /// "digits.idx[7]".
  std::string name(std::size_t batch, std::size_t index) const {
    if (batches[batch].count == 1) return files[batch];
    return batches.size() == 1 ? std::to_string(index)
                               : files[batch] + "[" + std::to_string(index) + "]";
  }
};

void report(const std::string& file, const Error& error) {
  std::fprintf(stderr, "error: %s: %s\n", file.c_str(), error.message().c_str());
}

Result<Samples> read_samples(const PredictFlags& flags) {
  auto& fs = os::real_file_system();
  Samples out;
  std::size_t count = 0;
  for (const std::string& path : flags.images) {
    const auto read = [&]() -> Result<oip::Images> {
      TRY(const std::string bytes, os::read_file(fs, followed(path)));
      return oip::parse_images(bytes);
    };
    Result<oip::Images> images = read();
    if (!images.ok()) {
      // Labels match images by their order, so no image may be missing.
      if (!flags.labels.empty() || flags.load()) return std::move(images).error().context(path);
      report(path, images.error());
      out.damaged.push_back(path);
      continue;
    }
    count += images->count;
    out.batches.push_back(std::move(*images));
    out.files.push_back(path);
  }
  if (count == 0) return Error(Code::kInvalid, "the files given have no images");
  if (flags.labels.empty()) return out;
  TRY(const std::string bytes, os::read_file(fs, followed(flags.labels)));
  TRY(out.labels, oip::parse_labels(bytes).context(flags.labels));
  if (out.labels.size() != count) {
    return Error(Code::kInvalid, flags.labels + ": " + std::to_string(out.labels.size()) +
                                     " labels for " + std::to_string(count) + " images");
  }
  return out;
}

/// Writes in place, without a rename: the file may be a mount, such as a container's termination
/// message.
Status write_report(const PredictFlags& flags, const Json& summary) {
  if (flags.report.empty()) return {};
  TRY(const auto file, os::real_file_system().open(flags.report, os::Open::kTruncate));
  return file->write(codec::write_json(summary) + "\n").context(flags.report);
}

Status load(const Context& ctx, const PredictFlags& flags, const Where& where,
            const ModelAccess& access, const std::vector<oip::Images>& batches) {
  oip::LoadOptions options{
      .url = where.url, .model = where.model_name, .clients = flags.clients, .rate = flags.rate};
  options.until_version = flags.until_version;
  options.replicas = flags.replicas;
  options.make_client = [&access](std::size_t idle) { return make_model_client(access, idle); };
  if (!flags.duration.empty()) {
    TRY(options.duration, parse_duration("--duration", flags.duration));
  }
  TRY(options.longest, parse_duration("--longest", flags.longest));
  TRY(const oip::LoadReport report, oip::put_load(ctx, options, batches));
  const Json json = report.to_json();
  std::fputs(flags.output == "json" ? (codec::write_json_pretty(json) + "\n").c_str()
                                    : report.to_text().c_str(),
             stdout);
  return write_report(flags, json);
}

std::string text_of(const oip::Detection& detection) {
  char text[96];
  const auto& box = detection.box;
  std::snprintf(text, sizeof text, "%.6g,%.6g to %.6g,%.6g", static_cast<double>(box[0]),
                static_cast<double>(box[1]), static_cast<double>(box[2]),
                static_cast<double>(box[3]));
  return text;
}

std::string probability_text(double probability) {
  char text[16];
  std::snprintf(text, sizeof text, "%.3f", probability);
  return text;
}

std::string latency_text(double latency) {
  char text[24];
  std::snprintf(text, sizeof text, "%.2f ms", latency);
  return text;
}

/// Collects the answers to images and prints them.
class Answers {
 public:
  Answers(const PredictFlags& flags, const Where& where, const Samples& samples)
      : flags_(flags), where_(where), samples_(samples) {}

  void add(const std::string& image, std::size_t number, const oip::Prediction& p) {
    const double latency = milliseconds(p.latency);
    version_ = p.version;
    latencies_.push_back(latency);
    Json one = Json::object({{"index", std::uint64_t{number}}, {"image", image}});
    if (p.detections) {
      boxes_ = true;
      Json list = Json::array();
      if (p.detections->empty())
        rows_.push_back({image, "(nothing)", "", "", latency_text(latency)});
      for (const oip::Detection& found : *p.detections) {
        const bool first = list.empty();
        rows_.push_back({image, found.guess.label, probability_text(found.guess.probability),
                         text_of(found), first ? latency_text(latency) : ""});
        list.push_back(Json::object({{"label", found.guess.label},
                                     {"probability", found.guess.probability},
                                     {"box", Json::array({static_cast<double>(found.box[0]),
                                                          static_cast<double>(found.box[1]),
                                                          static_cast<double>(found.box[2]),
                                                          static_cast<double>(found.box[3])})}}));
      }
      one.set("detections", std::move(list));
    } else {
      rows_.push_back(
          {image, p.guess.label, probability_text(p.guess.probability), "", latency_text(latency)});
      one.set("label", p.guess.label);
      one.set("probability", p.guess.probability);
    }
    one.set("latencyMs", latency);
    if (!samples_.labels.empty()) {
      const int expected = samples_.labels[number];
      const bool right = static_cast<int>(p.guess.index) == expected;
      correct_ += right;
      rows_.back().push_back(std::to_string(expected) + (right ? "" : "  wrong"));
      one.set("expected", expected);
    }
    if (const std::string& tier = p.parameters["tier"].as_string(); !tier.empty()) {
      ++tiers_[tier];
      hard_ += p.parameters["hard"].as_bool();
      rows_.back().push_back(tier);
      one.set("parameters", p.parameters);
    }
    predictions_.push_back(std::move(one));
  }

  Status print() {
    if (latencies_.empty()) return {};
    std::sort(latencies_.begin(), latencies_.end());
    const std::size_t count = latencies_.size();
    const double p50 = latencies_[count / 2], p99 = latencies_[count * 99 / 100];
    const double accuracy = static_cast<double>(correct_) / static_cast<double>(count);
    Json out = Json::object({{"model", where_.model_name},
                             {"version", version_},
                             {"url", where_.url},
                             {"count", std::uint64_t{count}}});
    if (!samples_.labels.empty()) {
      out.set("correct", std::uint64_t{correct_});
      out.set("accuracy", accuracy);
    }
    out.set("latencyMs", Json::object({{"p50", p50}, {"p99", p99}}));
    std::string by_tier;
    if (!tiers_.empty()) {
      Json answered = Json::object();
      for (const auto& [tier, number] : tiers_) {
        answered.set(tier, std::uint64_t{number});
        by_tier += (by_tier.empty() ? "" : ", ") + std::to_string(number) + " by " + tier;
      }
      out.set("answered", std::move(answered));
      out.set("hard", std::uint64_t{hard_});
    }
    TRY_VOID(write_report(flags_, out));
    if (flags_.output == "json") {
      out.set("predictions", std::move(predictions_));
      std::printf("%s\n", codec::write_json_pretty(out).c_str());
      return {};
    }
    std::vector<std::string> head = {"IMAGE", "LABEL", "PROBABILITY", "BOX", "LATENCY"};
    if (!samples_.labels.empty()) head.push_back("EXPECTED");
    if (!tiers_.empty()) head.push_back("TIER");
    rows_.insert(rows_.begin(), std::move(head));
    if (!boxes_) {
      for (std::vector<std::string>& row : rows_) row.erase(row.begin() + 3);
    }
    std::fputs(cli::align(rows_).c_str(), stdout);
    std::printf("%zu images, version %s of %s, latency p50 %.2f ms, p99 %.2f ms", count,
                version_.c_str(), where_.model_name.c_str(), p50, p99);
    if (!samples_.labels.empty()) std::printf(", accuracy %.4f (%zu right)", accuracy, correct_);
    std::printf("\n");
    if (!tiers_.empty()) std::printf("%zu hard; answered: %s\n", hard_, by_tier.c_str());
    return {};
  }

 private:
  const PredictFlags& flags_;
  const Where& where_;
  const Samples& samples_;
  std::vector<std::vector<std::string>> rows_;  // image, label, probability, box, latency …
  bool boxes_ = false;
  Json predictions_ = Json::array();
  std::vector<double> latencies_;
  std::size_t correct_ = 0, hard_ = 0;
  std::string version_;
  std::map<std::string, std::size_t> tiers_;  // answers by tier of a joint service
};

Status predict_each(const Context& ctx, const PredictFlags& flags, const Where& where,
                    const Samples& samples, net::HttpClient& http) {
  const oip::Client client(http, where.url);
  TRY(const oip::Predictor predictor,
      oip::Predictor::open(ctx, client, where.model_name).context(where.url));
  Answers answers(flags, where, samples);
  std::size_t number = 0, refused = 0;
  for (std::size_t batch = 0; batch < samples.batches.size(); ++batch) {
    const oip::Images& images = samples.batches[batch];
    for (std::size_t i = 0; i < images.count && (flags.limit == 0 || number < flags.limit);
         ++i, ++number) {
      const std::string name = samples.name(batch, i);
      const auto p = predictor.predict(ctx.with_timeout(kAnswerTimeout), images, i);
      if (p.ok()) {
        answers.add(name, number, *p);
        continue;
      }
      if (p.error().code() != Code::kInvalid || !samples.labels.empty())
        return Error(p.error()).context(name);
      // The model rejects this image and may accept the others.
      report(name, p.error());
      ++refused;
    }
  }
  TRY_VOID(answers.print());
  const std::size_t failed = refused + samples.damaged.size();
  if (failed == 0) return {};
  const std::string first =
      samples.damaged.empty() ? "" : " (" + samples.damaged.front() + (failed > 1 ? ", …)" : ")");
  return Error(Code::kInvalid, std::to_string(failed) +
                                   (failed == 1 ? " image has" : " images have") + " no answer" +
                                   first);
}

Status predict_tensors(const Context& ctx, const PredictFlags& flags, const Where& where,
                       oip::InferRequest request, net::HttpClient& http) {
  request.encoding = oip::Encoding::kBinary;  // exact, also for types that JSON lacks
  for (oip::RequestedOutput& output : request.outputs) output.encoding = oip::Encoding::kBinary;
  const oip::Client client(http, where.url);
  const SteadyTime start = system_clock().now();
  TRY(const oip::InferResponse response,
      client.infer(ctx.with_timeout(kAnswerTimeout), where.model_name, request).context(where.url));
  const double latency = milliseconds(system_clock().now() - start);
  Json out = Json::object({{"model", where.model_name},
                           {"version", response.model_version},
                           {"url", where.url},
                           {"latencyMs", latency}});
  if (response.parameters.is_object()) out.set("parameters", response.parameters);
  TRY_VOID(write_report(flags, out));
  if (flags.output == "json") {
    out.set("outputs", outputs_json(response));
    std::printf("%s\n", codec::write_json_pretty(out).c_str());
    return {};
  }
  std::fputs(outputs_text(response).c_str(), stdout);
  std::printf("version %s of %s, latency %.2f ms\n", response.model_version.c_str(),
              where.model_name.c_str(), latency);
  return {};
}

Status check_flags(const PredictFlags& flags) {
  if (!flags.output.empty() && flags.output != "json")
    return Error(Code::kInvalid, "-o takes json, not \"" + flags.output + "\"");
  const int kinds = (flags.images.empty() ? 0 : 1) + (flags.json.empty() ? 0 : 1) +
                    (flags.inputs.empty() ? 0 : 1);
  if (kinds != 1) return Error(Code::kInvalid, "give one of --images, --json and --input");
  if (flags.images.empty() && (flags.load() || !flags.labels.empty() || flags.limit > 0))
    return Error(Code::kInvalid, "--labels, --limit, --duration and --until-version need --images");
  if (!flags.replicas.empty() && !flags.load())
    return Error(Code::kInvalid, "--replica needs --duration or --until-version");
  return {};
}

Status predict(const Context& ctx, const Globals& globals, const PredictFlags& flags) {
  TRY_VOID(set_up_logs(globals, log::Level::kWarn));
  TRY_VOID(check_flags(flags));
  TRY(ModelAccess access, read_model_access(flags.access));
  if (flags.images.empty()) {
    TRY(oip::InferRequest request,
        flags.json.empty() ? read_npy_request(flags.inputs) : read_json_request(flags.json));
    TRY(const Where where, find_ready(ctx, globals, flags, access));
    return predict_tensors(ctx, flags, where, std::move(request), *make_model_client(access));
  }
  TRY(const Samples samples, read_samples(flags));
  TRY(const Where where, find_ready(ctx, globals, flags, access));
  return flags.load() ? load(ctx, flags, where, access, samples.batches)
                      : predict_each(ctx, flags, where, samples, *make_model_client(access));
}

}  // namespace

void add_predict_command(Program program) {
  const auto flags = std::make_shared<PredictFlags>();
  Globals& globals = program.globals;
  Run& chosen = program.chosen;
  CLI::App* command = program.parser.add_subcommand(
      "predict", "send images or tensors to a model and print its answers");
  command
      ->add_option("model", flags->model,
                   "name of an InferenceModel or a JointInferenceService, also as KIND/NAME (with "
                   "--url: of the model at that server)")
      ->required();
  command->add_option("--images", flags->images, "PNG, JPEG or IDX files (IDX is MNIST's format)");
  command->add_option("--json", flags->json,
                      "instead of images: file with an Open Inference Protocol request in JSON");
  command
      ->add_option(
          "--input", flags->inputs,
          "instead of images: NAME=FILE.npy, an input of the model and a NumPy file (repeatable)")
      ->allow_extra_args(false);
  command->add_option("--labels", flags->labels,
                      "IDX file of the expected labels, to print the accuracy");
  command->add_option("--limit", flags->limit, "only the first N images; 0: all")
      ->check(CLI::Range(0, 1'000'000'000));
  command->add_option("--url", flags->url, "call this server instead of the model's status.url");
  command->add_option("-n,--namespace", flags->ns,
                      "namespace of the model; default: the kubeconfig's, else \"default\"");
  command->add_option("--wait", flags->wait,
                      "time to wait for a server that does not answer yet: 30s, 5m");
  add_model_access_flags(*command, flags->access);
  constexpr const char* kLoadGroup = "Load";
  command
      ->add_option("--duration", flags->duration,
                   "send requests for this time, and report how many failed and how long answers "
                   "took: 30s, 5m")
      ->group(kLoadGroup);
  command
      ->add_option(
          "--until-version", flags->until_version,
          "send requests until this version has answered every client; then --duration starts")
      ->group(kLoadGroup);
  command->add_option("--longest", flags->longest, "maximum time of the run")
      ->default_str(flags->longest)
      ->group(kLoadGroup);
  command
      ->add_option("--clients", flags->clients,
                   "clients at a time; every second client opens a new connection for each request")
      ->check(CLI::Range(1, 1024))
      ->default_str("4")
      ->group(kLoadGroup);
  command
      ->add_option("--rate", flags->rate,
                   "requests a second of all clients together; 0: as fast as answers come")
      ->check(CLI::Range(0.0, 1e6))
      ->check(finite_number())
      ->default_str("0")
      ->group(kLoadGroup);
  command
      ->add_option("--replica", flags->replicas,
                   "URL of one server behind the model's URL, whose answers the report counts; may "
                   "be repeated")
      ->allow_extra_args(false)
      ->group(kLoadGroup);
  command->add_option("--report", flags->report, "also write the summary as JSON into this file");
  command->add_option("-o,--output", flags->output, "json");
  command->add_option("--kubeconfig", globals.kubeconfig, kKubeconfigHelp);
  command->callback([&chosen, &globals, flags] {
    chosen = [&globals, flags](const Context& ctx) { return predict(ctx, globals, *flags); };
  });
}

}  // namespace varda::app
