#include "api/sedna/federated_shape.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/ai/trainer_shape.h"
#include "api/describe.h"
#include "api/period.h"
#include "api/rule.h"
#include "api/sedna/federated_learning_job.h"

namespace varda::api {

namespace {

using rules::Shape;

constexpr std::int64_t kCountMax = 1'000'000'000;

Schema open_settings() {
  Schema open;
  open.type = Schema::Type::kObject;
  open.preserve_unknown = true;
  return open;
}

// Rules of federated::Rule::names(); a test of the controllers compares them.
std::vector<std::string> rule_names() {
  return {"Bulyan",  "FedAdagrad", "FedAdam",     "FedAvg", "FedAvgM",   "FedBuff",
          "FedProx", "FedYogi",    "Krum",        "Median", "MultiKrum", "NormClipping",
          "RFA",     "SCAFFOLD",   "TrimmedMean", "qFFL"};
}

// The members only give the schema types.
struct AggregatorShape {
  std::string name;
  Json parameters;

  static void describe(Type<AggregatorShape>& t) {
    t.doc("The rule that makes the next model from the updates of a round.");
    t.field("name", &AggregatorShape::name,
            "FedAvg, FedAvgM, FedAdam, Krum ... The guide describes all. Default: FedAvg.")
        .one_of(rule_names());
    t.field("parameters", &AggregatorShape::parameters, "Parameters of the rule.")
        .shaped(open_settings());
  }
};

struct StopShape {
  std::string metric;
  double at_least = 0, at_most = 0;
  std::int64_t patience = 0;

  static void describe(Type<StopShape>& t) {
    using S = StopShape;
    t.doc("Ends the job before its last round.");
    t.field("metric", &S::metric, "loss, accuracy ... of the evaluation.").required().length(1, 63);
    t.field("atLeast", &S::at_least, "The job ends when the metric is at least this.");
    t.field("atMost", &S::at_most, "The job ends when the metric is at most this.");
    t.field("patience", &S::patience,
            "The job ends after so many evaluations without a better value. 0: never.")
        .range(0, 100'000);
  }
};

struct FederatedEvaluationShape {
  std::optional<FederatedDataset> dataset;
  std::int64_t every = 0;

  static void describe(Type<FederatedEvaluationShape>& t);
};

struct CompressionShape {
  std::string encoding;
  double keep = 0;

  static void describe(Type<CompressionShape>& t) {
    t.doc("The form of the values in an update.");
    t.field("encoding", &CompressionShape::encoding,
            "dense, fp16, bf16, int8 or topk. Default: dense, with 32 bits.")
        .one_of({"dense", "fp16", "bf16", "int8", "topk"});
    t.field("keep", &CompressionShape::keep,
            "topk: share of the values that travel. Default: 0.01.")
        .range(0, 1);
    t.rule(rules::above("keep", 0));
  }
};

struct BoundsShape {
  double norm_max = 0, norm_factor = 0, weight_factor = 0, weight_max = 0;

  static void describe(Type<BoundsShape>& t) {
    using S = BoundsShape;
    t.doc("Limits of one update. An update beyond a limit does not count.");
    t.field("normMax", &S::norm_max, "Largest L2 norm. 0: none. Default: 0.").range(0, kCountMax);
    t.field("normFactor", &S::norm_factor,
            "Largest L2 norm, as a multiple of the median of the last updates. 0: none. Default: "
            "10.")
        .range(0, kCountMax);
    t.field("weightFactor", &S::weight_factor,
            "Largest weight, as a multiple of the median of the round. 0: none. Default: 10.")
        .range(0, kCountMax);
    t.field("weightMax", &S::weight_max, "Largest weight: samples. 0: none. Default: 0.")
        .range(0, kCountMax);
  }
};

struct ClientShape {
  Json when, privacy;
  std::int64_t bytes_per_second = 0, nice = 0, threads = 0;
  bool keep_optimizer = false;
  std::string signing_key_file;

  static void describe(Type<ClientShape>& t) {
    using S = ClientShape;
    t.doc("When and how much Varda's trainers may work.");
    t.field("when", &S::when,
            "Time of day, idle processor, mains power. The guide has the members.")
        .shaped(open_settings());
    t.field("bytesPerSecond", &S::bytes_per_second, "Limit in each direction. 0: none. Default: 0.")
        .format("int64")
        .range(0, kCountMax);
    t.field("nice", &S::nice, "Priority of the process, as of nice(1). Default: 0.").range(0, 19);
    t.field("threads", &S::threads, "Threads. 0: those of trainer. Default: 0.").range(0, 1024);
    t.field("keepOptimizer", &S::keep_optimizer,
            "The state of the optimizer stays from round to round. Default: false.");
    t.field("privacy", &S::privacy, "Differential privacy on the node: {clipNorm, noise}.")
        .shaped(open_settings());
    t.field("signingKeyFile", &S::signing_key_file,
            "PEM file with the client's Ed25519 key, for secureAggregation.signers.")
        .length(0, 4096);
  }
};

struct SecureAggregationShape {
  std::int64_t neighbours = 0;
  double limit = 0;
  std::vector<std::string> signers;

  static void describe(Type<SecureAggregationShape>& t) {
    using S = SecureAggregationShape;
    t.doc("The aggregator learns sums of updates, and no single update.");
    t.field("neighbours", &S::neighbours,
            "Clients with which a client shares masks; an even number. Default: 10.")
        .range(4, 254);
    t.field("limit", &S::limit,
            "Values beyond it are cut. Default: 8, or derived from the clip of privacy.")
        .range(0, kCountMax);
    t.field("signers", &S::signers,
            "Ed25519 public keys in base64, one for each client. Default: keys without signature.")
        .items_max(10'000)
        .each_pattern("^[A-Za-z0-9+/]{43}=$")
        .each_length(44, 44);
    t.rule(rules::above("limit", 0));
  }
};

struct FederatedShape {
  std::string mode, late;
  std::int64_t rounds = 0, minimum_clients = 0, clients_per_round = 0, local_epochs = 0,
               local_steps = 0, buffer_size = 0, staleness_max = 0, seed = 0;
  double quorum = 0, fraction = 0, proximal = 0;
  std::optional<AggregatorShape> aggregator;
  Json round_deadline, trainer, privacy;
  std::optional<SecureAggregationShape> secure_aggregation;
  std::optional<StopShape> stop;
  std::optional<FederatedEvaluationShape> evaluation;
  std::optional<CompressionShape> compression;
  std::optional<BoundsShape> bounds;
  std::optional<ClientShape> client;

  static void describe(Type<FederatedShape>& t);
};

void FederatedEvaluationShape::describe(Type<FederatedEvaluationShape>& t) {
  using S = FederatedEvaluationShape;
  t.doc("The measurement of the model on the data of the training workers.");
  t.field("dataset", &S::dataset,
          "Datasets for the evaluation, one on each node. Default: a part of the training data.");
  t.field("every", &S::every, "Rounds between two evaluations. 0: none. Default: 1.")
      .range(0, 100'000);
}

/// With secureAggregation, the member at `path` is absent or `value`.
Rule secure_needs(std::vector<std::string> path, const std::string& value, const std::string& why) {
  Rule rule;
  rule.cel = "!has(self.secureAggregation)";
  std::string member = "self";
  for (const std::string& name : path) {
    member += "." + name;
    rule.cel += " || !has(" + member + ")";
  }
  rule.cel += " || " + member + " == " + rules::cel_quote(value);
  rule.message = why;
  rule.reason = "FieldValueForbidden";
  rule.field_path = ".secureAggregation";
  rule.check = [path = std::move(path), value, why](const Json& self) -> std::vector<Violation> {
    if (self["secureAggregation"].is_null()) return {};
    const Json* found = &self;
    for (const std::string& name : path) {
      found = found->find(name);
      if (found == nullptr) return {};
    }
    if (!found->is_string() || found->as_string() == value) return {};
    return {{"FieldValueForbidden", ".secureAggregation", "Forbidden: " + why}};
  };
  return rule;
}

void FederatedShape::describe(Type<FederatedShape>& t) {
  using S = FederatedShape;
  t.doc("Settings of varda-aggregate.");
  t.field("mode", &S::mode,
          "sync: a round ends with all updates, or at its deadline. async: the model changes after "
          "every bufferSize updates. Default: sync.")
      .one_of({"sync", "async"});
  t.field("rounds", &S::rounds, "Number of rounds. Default: 10.").range(1, 100'000);
  t.field("aggregator", &S::aggregator,
          "The rule that makes the next model from the updates of a round.");
  t.field("quorum", &S::quorum,
          "Updates with which a round may end at its deadline: up to 1 a share of the round's "
          "clients, from 2 a number. Default: 0.6.")
      .range(0, kCountMax);
  t.field("roundDeadline", &S::round_deadline,
          "Time limit of a round: seconds, or a time such as 90s or 5m. Default: 10m.")
      .int_or_string()
      .range(1, kPeriodSecondsMax)
      .pattern(kPeriodPattern)
      .length(0, kPeriodLengthMax);
  t.field("minimumClients", &S::minimum_clients,
          "Clients without which no round begins. Default: 2.")
      .range(1, 100'000);
  t.field("fraction", &S::fraction, "Share of the clients in a round. Default: 1.").range(0, 1);
  t.field("clientsPerRound", &S::clients_per_round,
          "Number of clients in a round, instead of fraction.")
      .range(0, 100'000);
  t.field("localEpochs", &S::local_epochs,
          "Passes of a client over its data in a round. Default: 1.")
      .range(1, 100'000);
  t.field("localSteps", &S::local_steps, "Steps of a client in a round, instead of localEpochs.")
      .range(0, kCountMax);
  t.field("proximal", &S::proximal, "FedProx: factor of the proximal term. Default: 0.")
      .range(0, kCountMax);
  t.field("trainer", &S::trainer, "Settings of varda-train, as in a TrainingModel.")
      .shaped(trainer_shape());
  t.field("stop", &S::stop, "Ends the job before its last round.");
  t.field("evaluation", &S::evaluation,
          "The measurement of the model on the data of the training workers.");
  t.field("compression", &S::compression, "The form of the values in an update. Default: 32 bits.");
  t.field("late", &S::late,
          "drop: an update after the end of its round is refused. fold: it joins the next round "
          "with a smaller weight. Default: drop.")
      .one_of({"drop", "fold"});
  t.field("bufferSize", &S::buffer_size, "async: updates for a new model. Default: 10.")
      .range(1, 100'000);
  t.field("stalenessMax", &S::staleness_max,
          "async: versions after which an update is dropped. Default: 20.")
      .range(0, 100'000);
  t.field("bounds", &S::bounds, "Limits of one update.");
  t.field("client", &S::client, "When and how much Varda's trainers may work.");
  t.field("privacy", &S::privacy, "Differential privacy. The guide has the members.")
      .shaped(open_settings());
  t.field("secureAggregation", &S::secure_aggregation,
          "The aggregator learns sums of updates, and no single update. {} has the defaults.");
  t.field("seed", &S::seed, "Seed of all random choices. Default: 1.").format("int64");
  t.rule(rules::above("quorum", 0));
  t.rule(rules::above("fraction", 0));
  t.rule(rules::forbidden_with({"fraction", Shape::kNumber}, {{"clientsPerRound", Shape::kNumber}},
                               "may not be set together with clientsPerRound"));
  t.rule(rules::forbidden_with({"localEpochs", Shape::kNumber}, {{"localSteps", Shape::kNumber}},
                               "may not be set together with localSteps"));
  t.rule(secure_needs({"mode"}, "sync", "needs the mode sync: all clients of a sum share keys"));
  t.rule(secure_needs({"late"}, "drop", "needs late: drop, since a late update misses its sum"));
  t.rule(secure_needs({"compression", "encoding"}, "dense",
                      "needs compression.encoding: dense, since masks fill all bits"));
}

}  // namespace

Schema federated_shape() { return ops_of<FederatedShape>().schema(); }

}  // namespace varda::api
