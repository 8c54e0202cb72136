#include "api/ai/trainer_shape.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "api/describe.h"
#include "api/rule.h"

namespace varda::api {

namespace {

// Largest bound of numbers without a natural one. A schema has whole bounds only.
constexpr std::int64_t kNumberMax = 1'000'000'000;

// The members only give the schema types.
struct OptimizerShape {
  std::string name;
  double learning_rate = 0, momentum = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  bool nesterov = false;

  static void describe(Type<OptimizerShape>& t) {
    using S = OptimizerShape;
    t.doc("How the weights change.");
    t.field("name", &S::name, "sgd, adam or adamw. Default: sgd.").one_of({"sgd", "adam", "adamw"});
    t.field("learningRate", &S::learning_rate, "Default: 0.01 for sgd, 0.001 otherwise.")
        .range(0, kNumberMax);
    t.field("momentum", &S::momentum, "sgd: default 0.").range(0, 1);
    t.field("nesterov", &S::nesterov, "sgd with momentum: Nesterov's form. Default: false.");
    t.field("beta1", &S::beta1, "adam and adamw: default 0.9.").range(0, 1);
    t.field("beta2", &S::beta2, "adam and adamw: default 0.999.").range(0, 1);
    t.field("epsilon", &S::epsilon, "adam and adamw: default 1e-8.").range(0, 1);
    t.field("weightDecay", &S::weight_decay, "Default: 0.").range(0, kNumberMax);
    t.rule(rules::above("learningRate", 0));
    for (const char* member : {"momentum", "beta1", "beta2"}) t.rule(rules::below(member, 1));
    t.rule(rules::above("epsilon", 0));
  }
};

struct ScheduleShape {
  std::string name;
  std::int64_t warmup_epochs = 0, every_epochs = 0;
  double factor = 0, minimum = 0;

  static void describe(Type<ScheduleShape>& t) {
    using S = ScheduleShape;
    t.doc("How the learning rate changes over the epochs.");
    t.field("name", &S::name, "constant, step or cosine. Default: constant.")
        .one_of({"constant", "step", "cosine"});
    t.field("warmupEpochs", &S::warmup_epochs,
            "Epochs in which the learning rate rises from 0. Default: 0.")
        .range(0, 100'000);
    t.field("everyEpochs", &S::every_epochs, "step: epochs between two steps. Default: 1.")
        .range(1, 100'000);
    t.field("factor", &S::factor, "step: factor of each step. Default: 0.1.").range(0, 1);
    t.field("minimum", &S::minimum, "Lower bound of the learning rate. Default: 0.")
        .range(0, kNumberMax);
    t.rule(rules::above("factor", 0));
  }
};

struct EarlyStoppingShape {
  std::string metric;
  std::int64_t patience = 0;

  static void describe(Type<EarlyStoppingShape>& t) {
    using S = EarlyStoppingShape;
    t.doc("Ends the run when a metric of the evaluation no longer improves.");
    t.field("metric", &S::metric, "loss, accuracy, f1, mae ... loss, mae and rmse fall.")
        .required()
        .length(1, 63);
    t.field("patience", &S::patience, "Epochs without a better value. Default: 3.")
        .range(1, 100'000);
  }
};

struct HeadShape {
  std::int64_t classes = 0;

  static void describe(Type<HeadShape>& t) {
    t.doc("Replaces the last layer for another number of classes.");
    t.field("classes", &HeadShape::classes, "Number of classes.").required().range(1, 1'000'000);
  }
};

struct AugmentShape {
  bool flip = false;
  std::int64_t crop = 0;
  double jitter = 0;

  static void describe(Type<AugmentShape>& t) {
    using S = AugmentShape;
    t.doc("Random changes of the training images.");
    t.field("flip", &S::flip, "Mirrors half of the images. Default: false.");
    t.field("crop", &S::crop, "Largest shift in pixels. Default: 0.").range(0, 4096);
    t.field("jitter", &S::jitter, "Change of brightness and contrast, 0 to 1. Default: 0.")
        .range(0, 1);
  }
};

struct TrainerShape {
  std::string task, loss, class_weights, label_column;
  std::int64_t epochs = 0, batch_size = 0, accumulate = 0, seed = 0, threads = 0, feature_cache = 0;
  double label_smoothing = 0, huber_delta = 0, clip_norm = 0;
  std::optional<OptimizerShape> optimizer;
  std::optional<ScheduleShape> schedule;
  std::optional<EarlyStoppingShape> early_stopping;
  std::optional<HeadShape> head;
  std::optional<AugmentShape> augment;
  std::vector<std::string> freeze, feature_columns;

  static void describe(Type<TrainerShape>& t);
};

void TrainerShape::describe(Type<TrainerShape>& t) {
  using S = TrainerShape;
  t.doc("Settings of varda-train.");
  t.field("task", &S::task, "classification, multilabel or regression. Default: classification.")
      .one_of({"classification", "multilabel", "regression"});
  t.field("epochs", &S::epochs, "Passes over the training data. Default: 5.").range(1, 100'000);
  t.field("batchSize", &S::batch_size, "Samples of one step. Default: 32.").range(1, 65'536);
  t.field("loss", &S::loss, "crossEntropy, binaryCrossEntropy, mse or huber. Default: by the task.")
      .one_of({"crossEntropy", "binaryCrossEntropy", "mse", "huber"});
  t.field("labelSmoothing", &S::label_smoothing, "crossEntropy: 0 to less than 1. Default: 0.")
      .range(0, 1);
  t.field("huberDelta", &S::huber_delta, "huber: error above which the loss is linear. Default: 1.")
      .range(0, kNumberMax);
  t.field("optimizer", &S::optimizer, "How the weights change.");
  t.field("schedule", &S::schedule, "How the learning rate changes over the epochs.");
  t.field("clipNorm", &S::clip_norm, "Largest norm of all gradients together. 0: none. Default: 0.")
      .range(0, kNumberMax);
  t.field("accumulate", &S::accumulate, "Batches of one update. Default: 1.").range(1, 65'536);
  t.field("earlyStopping", &S::early_stopping,
          "Ends the run when a metric no longer improves. Default: never.");
  t.field("freeze", &S::freeze, "Names of weights that stay, with * and ?.")
      .items_max(64)
      .each_length(1, 253);
  t.field("head", &S::head, "Replaces the last layer for another number of classes.");
  t.field("classWeights", &S::class_weights,
          "none, or balanced: rare classes count more. Default: none.")
      .one_of({"none", "balanced"});
  t.field("augment", &S::augment, "Random changes of the training images. Default: none.");
  t.field("labelColumn", &S::label_column,
          "csv and tsv: column of the label. Default: the last column.")
      .length(0, 253);
  t.field("featureColumns", &S::feature_columns,
          "csv and tsv: columns of the input. Default: all other columns.")
      .items_max(4096)
      .each_length(1, 253);
  t.field("seed", &S::seed, "Seed of all random choices. Default: 1.").format("int64");
  t.field("threads", &S::threads, "Threads of the trainer. 0: all processors. Default: 0.")
      .range(0, 1024);
  t.field("featureCache", &S::feature_cache,
          "MiB of memory for what frozen layers compute, instead of each epoch again. 0: none. "
          "Default: 128.")
      .range(0, 1 << 20);
  t.rule(rules::below("labelSmoothing", 1));
  t.rule(rules::above("huberDelta", 0));
}

}  // namespace

Schema trainer_shape() { return ops_of<TrainerShape>().schema(); }

}  // namespace varda::api
