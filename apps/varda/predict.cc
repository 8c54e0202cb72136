#include "predict.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "api/ai/inference_model.h"
#include "cli/printer.h"
#include "kube/config.h"
#include "meta/object.h"
#include "net/client.h"
#include "oip/client.h"
#include "os/file_system.h"

namespace varda::app {
namespace {

using codec::Json;

struct Flags {
  std::string model, ns, url, labels, output;
  std::vector<std::string> images;
  std::size_t limit = 0;
};

struct Where {
  std::string url, model_name;
};

/// Where the model answers, by its status, or why it does not.
Result<Where> find_model(const Context& ctx, const Globals& globals, const Flags& flags) {
  if (!flags.url.empty()) return Where{flags.url, flags.model};
  TRY(const kube::Config config, find_server(globals));
  const std::unique_ptr<kube::Client> client = kube::connect(config);
  TRY(const Json object, client->get(ctx, api::InferenceModel::resource(), {flags.ns.empty() ? config.ns : flags.ns, flags.model}));
  TRY(const api::InferenceModel model, api::InferenceModel::from_json(object));
  if (model.status.url.empty()) {
    const meta::Condition* ready = meta::find_condition(model.status.conditions, "Ready");
    return Error(Code::kUnavailable, "InferenceModel " + flags.model + " does not serve yet" +
                                         (ready ? " (" + ready->reason + ": " + ready->message + ")" : "") +
                                         "; `varda wait inferencemodel/" + flags.model + " --for=condition=Ready` waits for it");
  }
  return Where{model.status.url, model.spec.model_name.empty() ? flags.model : model.spec.model_name};
}

double milliseconds(Duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); }

Status predict(const Context& ctx, const Globals& globals, const Flags& flags) {
  TRY_VOID(set_up_logs(globals, log::Level::kWarn));
  if (!flags.output.empty() && flags.output != "json") return Error(Code::kInvalid, "-o takes json, not \"" + flags.output + "\"");
  auto& fs = os::real_file_system();
  std::vector<oip::Images> batches;
  for (const std::string& path : flags.images) {
    TRY(const std::string bytes, os::read_file(fs, path));
    TRY(oip::Images images, oip::parse_images(bytes).context(path));
    batches.push_back(std::move(images));
  }
  std::vector<int> labels;
  if (!flags.labels.empty()) {
    TRY(const std::string bytes, os::read_file(fs, flags.labels));
    TRY(labels, oip::parse_labels(bytes).context(flags.labels));
    std::size_t count = 0;
    for (const oip::Images& images : batches) count += images.count;
    if (labels.size() != count) {
      return Error(Code::kInvalid,
                   flags.labels + ": " + std::to_string(labels.size()) + " labels for " + std::to_string(count) + " images");
    }
  }
  TRY(const Where where, find_model(ctx, globals, flags));
  const std::unique_ptr<net::HttpClient> http = net::make_client({});
  const oip::Client client(*http, where.url);
  TRY(const oip::Predictor predictor, oip::Predictor::open(ctx, client, where.model_name).context(where.url));

  std::vector<std::vector<std::string>> rows = {{"IMAGE", "LABEL", "PROBABILITY", "LATENCY"}};
  if (!labels.empty()) rows[0].push_back("EXPECTED");
  Json predictions = Json::array();
  std::vector<double> latencies;
  std::size_t number = 0, correct = 0;
  std::string version;
  for (const oip::Images& images : batches) {
    for (std::size_t i = 0; i < images.count && (flags.limit == 0 || number < flags.limit); ++i, ++number) {
      TRY(const oip::Prediction p,
          predictor.predict(ctx.with_timeout(std::chrono::seconds(30)), images, i).context("image " + std::to_string(number)));
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
      rows.push_back(std::move(row));
      predictions.push_back(std::move(one));
    }
  }
  if (latencies.empty()) return Error(Code::kInvalid, "no images in the files given");
  std::sort(latencies.begin(), latencies.end());
  const double p50 = latencies[latencies.size() / 2], p99 = latencies[latencies.size() * 99 / 100];
  const double accuracy = static_cast<double>(correct) / static_cast<double>(number);
  if (flags.output == "json") {
    Json out =
        Json::object({{"model", where.model_name}, {"version", version}, {"url", where.url}, {"count", std::uint64_t{number}}});
    if (!labels.empty()) {
      out.set("correct", std::uint64_t{correct});
      out.set("accuracy", accuracy);
    }
    out.set("latencyMs", Json::object({{"p50", p50}, {"p99", p99}}));
    out.set("predictions", std::move(predictions));
    std::printf("%s\n", codec::write_json_pretty(out).c_str());
    return {};
  }
  std::fputs(cli::align(rows).c_str(), stdout);
  std::printf("%zu images, version %s of %s, latency p50 %.2f ms, p99 %.2f ms", number, version.c_str(), where.model_name.c_str(),
              p50, p99);
  if (!labels.empty()) std::printf(", accuracy %.4f (%zu right)", accuracy, correct);
  std::printf("\n");
  return {};
}

}  // namespace

void add_predict_command(Program program) {
  const auto flags = std::make_shared<Flags>();
  Globals& globals = program.globals;
  Run& chosen = program.chosen;
  CLI::App* command = program.parser.add_subcommand("predict", "send images to a model; print label, probability and latency");
  command->add_option("model", flags->model, "name of an InferenceModel (with --url: of the model at that server)")->required();
  command->add_option("--images", flags->images, "IDX (MNIST's format) or PNG files")->required();
  command->add_option("--labels", flags->labels, "IDX file of the right answers; then accuracy is printed");
  command->add_option("--limit", flags->limit, "only the first N images; 0: all")->check(CLI::Range(0, 1'000'000'000));
  command->add_option("--url", flags->url, "ask this server instead of the model's status.url");
  command->add_option("-n,--namespace", flags->ns, "of the InferenceModel");
  command->add_option("-o,--output", flags->output, "json");
  command->add_option("--kubeconfig", globals.kubeconfig,
                      "where the InferenceModel is; default: $KUBECONFIG, then that of `varda up`");
  command->callback(
      [&chosen, &globals, flags] { chosen = [&globals, flags](const Context& ctx) { return predict(ctx, globals, *flags); }; });
}

}  // namespace varda::app
