// Settings of federated training, as in spec.federated of a FederatedLearningJob and in the file of
// `varda-aggregate --settings`.
//
//   TRY(const codec::Json json, codec::parse_yaml(text));
//   TRY(const federated::Settings settings, federated::parse_settings(json));
//
// docs/design/028-federated-learning.md has an example. The members of the JSON have the names of
// the struct in camel case.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/json.h"

namespace varda::federated {

/// kSync: all clients of a round start from one model. kAsync: the model changes after every
/// `buffer_size` updates (FedBuff).
enum class Mode : std::uint8_t { kSync, kAsync };
/// The fate of an update that arrives after its round: it is refused, or joins the next round.
enum class Late : std::uint8_t { kDrop, kFold };
/// The form of the values in an update. All but kTopK and kInt8 are dense with that type.
enum class Compression : std::uint8_t { kDense, kFp16, kBf16, kInt8, kTopK };

/// The rule that makes the next model, with its parameters as written.
struct AggregatorSettings {
  std::string name = "FedAvg";
  codec::Json parameters = codec::Json::object();
};

struct StopSettings {
  std::string metric;
  std::optional<double> at_least, at_most;  // the job ends when the metric is there
  std::int64_t patience = 0;                // evaluations without a better value; 0: no limit

  bool lower_is_better() const { return metric == "loss" || metric == "mae" || metric == "rmse"; }
};

struct EvaluationSettings {
  std::int64_t every = 1;               // rounds between evaluations by the clients; 0: none
  codec::Json dataset = codec::Json();  // of the kind: data other than the training data; or null
};

struct CompressionSettings {
  Compression encoding = Compression::kDense;
  double keep = 0.01;  // topk: share of the values that travel
};

/// Limits against poisoning, as Bounds of rules.h. 0: no limit.
struct BoundsSettings {
  double norm_max = 0;        // L2 norm of an update
  double norm_factor = 10;    // the same, as a multiple of the round's median
  double weight_factor = 10;  // samples that count, as a multiple of the round's median
  double weight_max = 0;      // samples that count
};

/// kCentral: the aggregator adds noise to the mean. kLocal: each client adds noise to the update.
enum class PrivacyMode : std::uint8_t { kCentral, kLocal };

/// Differential privacy of the clients, docs/design/031-privacy.md.
struct PrivacySettings {
  struct AdaptiveClip {
    double quantile = 0.5;       // share of updates that the clip leaves whole
    double learning_rate = 0.2;  // of the clip's logarithm
  };
  PrivacyMode mode = PrivacyMode::kCentral;
  double clip = 0;              // largest L2 norm of an update; above 0
  double noise_multiplier = 0;  // deviation of the noise in units of the sensitivity; above 0
  double delta = 1e-5;
  std::optional<double> epsilon_max;  // the job ends before a round that would spend more
  std::optional<AdaptiveClip> adaptive_clip;
};

/// Secure aggregation: the aggregator learns the sum of a round's updates, and no single update.
/// docs/design/031-privacy.md has the protocol.
struct SecureSettings {
  std::int64_t neighbours = 10;      // of a client in the graph of masks; even
  std::optional<double> limit;       // values beyond it are cut; absent: secure_limit() derives it
  std::vector<std::string> signers;  // Ed25519 public keys in base64; empty: keys without signature
};
/// Clients without which a secure sum would show single updates.
inline constexpr std::int64_t kSecureClientsMin = 3;

/// The part of the settings that a client needs. A task carries it as the member `train`.
struct TrainSettings {
  std::int64_t local_epochs = 1;
  std::int64_t local_steps = 0;                 // optimizer steps instead of epochs; 0: epochs
  double proximal = 0;                          // FedProx: factor of the proximal term
  std::uint64_t seed = 1;                       // below 2^63; differs by round
  codec::Json trainer = codec::Json::object();  // members of training::parse_settings()
};

struct Settings {
  Mode mode = Mode::kSync;
  std::int64_t rounds = 10;
  AggregatorSettings aggregator;
  double quorum = 0.6;  // up to 1: share of the round's clients; from 2: a number of clients
  std::chrono::milliseconds round_deadline{600'000};
  std::int64_t minimum_clients = 2;
  double fraction = 1;                 // share of the clients in a round
  std::int64_t clients_per_round = 0;  // 0: `fraction` decides
  TrainSettings train;                 // its seed is `seed`
  std::optional<StopSettings> stop;
  EvaluationSettings evaluation;
  CompressionSettings compression;
  Late late = Late::kDrop;
  std::int64_t buffer_size = 10;    // async: updates for a new model
  std::int64_t staleness_max = 20;  // versions; older updates are dropped
  BoundsSettings bounds;
  std::optional<PrivacySettings> privacy;
  std::optional<SecureSettings> secure;  // `secureAggregation`; {} has the defaults
  codec::Json client = codec::Json();    // settings of the clients alone; or null
  std::uint64_t seed = 1;                // below 2^63
};

/// Absent members have their defaults. kInvalid: a member is unknown, out of range or does not fit
/// another; the message has the path of the member, the value and the nearest name.
Result<Settings> parse_settings(const codec::Json& json);
/// All members. parse_settings() reads the same settings back.
codec::Json to_json(const Settings& settings);

/// The limit of values in a secure sum: as set, or derived from the clip and the noise of
/// `privacy`, else 8.
double secure_limit(const Settings& settings);
/// Samples that count in a secure sum: `bounds.weightMax`, or 65,536.
double secure_weight_max(const Settings& settings);

/// The member `train` of a task.
Result<TrainSettings> parse_train_settings(const codec::Json& json);
codec::Json to_json(const TrainSettings& settings);

std::string_view to_string(Mode mode);
std::string_view to_string(Late late);
std::string_view to_string(PrivacyMode mode);
std::string_view to_string(Compression encoding);
/// kInvalid: an unknown name.
Result<Compression> parse_compression(std::string_view name);

}  // namespace varda::federated
