#include "federated/settings.h"

#include <limits>
#include <utility>

#include "codec/digest.h"
#include "codec/ed25519.h"
#include "codec/settings_reader.h"
#include "privacy/mechanism.h"

namespace varda::federated {
namespace {

using codec::Choice;
using codec::choice_name;
using codec::Json;
using codec::kAboveLow;
using codec::SettingsReader;

constexpr std::int64_t kClientsMax = 100'000, kRoundsMax = 100'000, kStalenessMax = 1000;
constexpr std::int64_t kNeighboursMax = 254;  // a secret has at most 255 shares
constexpr double kSecureLimit = 8, kSecureWeightMax = 65'536;
constexpr std::chrono::seconds kDeadlineMin{1}, kDeadlineMax{30 * 86'400};

constexpr Choice<Mode> kModes[] = {{"sync", Mode::kSync}, {"async", Mode::kAsync}};
constexpr Choice<Late> kLates[] = {{"drop", Late::kDrop}, {"fold", Late::kFold}};
constexpr Choice<PrivacyMode> kPrivacyModes[] = {{"central", PrivacyMode::kCentral},
                                                 {"local", PrivacyMode::kLocal}};
constexpr Choice<Compression> kCompressions[] = {{"dense", Compression::kDense},
                                                 {"fp16", Compression::kFp16},
                                                 {"bf16", Compression::kBf16},
                                                 {"int8", Compression::kInt8},
                                                 {"topk", Compression::kTopK}};

Error contradiction(std::string message) { return Error(Code::kInvalid, std::move(message)); }

void read_seed(SettingsReader& in, std::uint64_t& out) {
  auto seed = static_cast<std::int64_t>(out);
  in.integer("seed", seed, 0, std::numeric_limits<std::int64_t>::max());
  out = static_cast<std::uint64_t>(seed);
}

/// An object that another parser reads.
void read_object(SettingsReader& in, std::string_view name, Json& out) {
  const Json* value = in.object(name);
  if (value == nullptr) return;
  if (value->is_object())
    out = *value;
  else
    in.refuse(name, "an object");
}

void read_train(SettingsReader& in, TrainSettings& out) {
  in.integer("localEpochs", out.local_epochs, 1, 100'000);
  in.integer("localSteps", out.local_steps, 0, 100'000'000);
  in.number("proximal", out.proximal, {0, 1e6});
  read_object(in, "trainer", out.trainer);
}

void read_limit(SettingsReader& in, std::string_view name, std::optional<double>& out) {
  double value = std::numeric_limits<double>::infinity();
  in.number(name, value, {-1e30, 1e30});
  if (value < std::numeric_limits<double>::infinity()) out = value;
}

void read_privacy(const Json& json, Status& status, PrivacySettings& out) {
  SettingsReader in(json, "privacy", status);
  in.choice("mode", out.mode, kPrivacyModes);
  in.number("clip", out.clip, {0, 1e12, kAboveLow});
  in.number("noiseMultiplier", out.noise_multiplier, {0, 1e6, kAboveLow});
  in.number("delta", out.delta, {0, 0.1, kAboveLow});
  read_limit(in, "epsilonMax", out.epsilon_max);
  if (const Json* value = in.object("adaptiveClip")) {
    out.adaptive_clip = PrivacySettings::AdaptiveClip{};
    PrivacySettings::AdaptiveClip& clip = *out.adaptive_clip;
    SettingsReader members(*value, "privacy.adaptiveClip", status);
    members.number("quantile", clip.quantile, {0.01, 0.99});
    members.number("learningRate", clip.learning_rate, {0, 1, kAboveLow});
    members.end();
  }
  in.end();
}

Status check_privacy(const Settings& settings) {
  const PrivacySettings& privacy = *settings.privacy;
  if (privacy.clip <= 0 || privacy.noise_multiplier <= 0)
    return contradiction("privacy needs the members clip and noiseMultiplier");
  if (privacy.epsilon_max && *privacy.epsilon_max <= 0)
    return contradiction("privacy.epsilonMax must be positive");
  if (settings.mode == Mode::kAsync)
    return contradiction("privacy needs the mode sync: it counts one update of a client a round");
  if (settings.late == Late::kFold)
    return contradiction("privacy needs late: drop, since a late update joins a second mean");
  if (privacy.adaptive_clip && privacy.mode == PrivacyMode::kLocal)
    return contradiction("privacy.adaptiveClip needs the mode central");
  return {};
}

void read_secure(const Json& json, Status& status, SecureSettings& out) {
  SettingsReader in(json, "secureAggregation", status);
  in.integer("neighbours", out.neighbours, 4, kNeighboursMax);
  double limit = 0;
  in.number("limit", limit, {0, 1e12, kAboveLow});
  if (limit > 0) out.limit = limit;
  in.texts("signers", out.signers);
  for (const std::string& signer : out.signers) {
    const auto key = codec::unbase64(signer);
    if (!key.ok() || !codec::Ed25519PublicKey::from_bytes(*key).ok())
      in.refuse("signers", "a list of Ed25519 public keys, 32 bytes each, in base64");
  }
  in.end();
}

/// A masked vector has no other use than in the mean of its round.
Status check_secure(const Settings& settings) {
  const SecureSettings& secure = *settings.secure;
  if (secure.neighbours % 2 != 0)
    return contradiction("secureAggregation.neighbours must be even, not " +
                         std::to_string(secure.neighbours));
  if (settings.mode == Mode::kAsync)
    return contradiction("secureAggregation needs the mode sync: all clients of a sum share keys");
  if (settings.late == Late::kFold)
    return contradiction("secureAggregation needs late: drop, since a late update misses its sum");
  if (settings.compression.encoding != Compression::kDense)
    return contradiction(
        "secureAggregation needs compression.encoding: dense, since masks fill all bits");
  if (settings.bounds.norm_max > 0)
    return contradiction(
        "secureAggregation excludes bounds.normMax: the aggregator sees no single update");
  if (settings.privacy && settings.privacy->adaptive_clip)
    return contradiction(
        "secureAggregation excludes privacy.adaptiveClip: the aggregator sees no single length");
  if (settings.clients_per_round > 0 && settings.clients_per_round < kSecureClientsMin)
    return contradiction(
        "secureAggregation needs clientsPerRound from 3: a sum of two updates "
        "shows each client the other one");
  if (!secure.signers.empty() &&
      secure.signers.size() < static_cast<std::size_t>(kSecureClientsMin))
    return contradiction("secureAggregation.signers needs a key for each client, at least 3");
  return {};
}

Status check_settings(const Settings& settings) {
  if (settings.secure) TRY_VOID(check_secure(settings));
  if (settings.privacy) TRY_VOID(check_privacy(settings));
  if (settings.quorum > 1 &&
      settings.quorum != static_cast<double>(static_cast<std::int64_t>(settings.quorum)))
    return contradiction("quorum must be a share up to 1 or a whole number of clients, not " +
                         codec::write_json(settings.quorum));
  if (settings.fraction < 1 && settings.clients_per_round > 0)
    return contradiction("fraction and clientsPerRound exclude each other");
  if (settings.clients_per_round > 0 && settings.quorum > 1 &&
      settings.quorum > static_cast<double>(settings.clients_per_round))
    return contradiction("quorum must not be above clientsPerRound");
  if (settings.compression.keep != CompressionSettings().keep &&
      settings.compression.encoding != Compression::kTopK)
    return contradiction("compression.keep needs the encoding topk");
  if (settings.stop) {
    const StopSettings& stop = *settings.stop;
    if (stop.metric.empty()) return contradiction("stop needs the member metric");
    if (!stop.at_least && !stop.at_most && stop.patience == 0)
      return contradiction("stop needs one of atLeast, atMost and patience");
    if (settings.evaluation.every == 0)
      return contradiction("stop needs evaluations, but evaluation.every is 0");
  }
  return {};
}

}  // namespace

std::string_view to_string(Mode mode) { return choice_name(kModes, mode); }
std::string_view to_string(Late late) { return choice_name(kLates, late); }
std::string_view to_string(PrivacyMode mode) { return choice_name(kPrivacyModes, mode); }
std::string_view to_string(Compression encoding) { return choice_name(kCompressions, encoding); }

Result<Compression> parse_compression(std::string_view name) {
  for (const auto& [text, encoding] : kCompressions)
    if (text == name) return encoding;
  return Error(Code::kInvalid, "unknown encoding " + codec::write_json(name));
}

Result<Settings> parse_settings(const Json& json) {
  Settings out;
  Status status;
  SettingsReader in(json, "", status);
  in.choice("mode", out.mode, kModes);
  in.integer("rounds", out.rounds, 1, kRoundsMax);
  if (const Json* value = in.object("aggregator")) {
    SettingsReader members(*value, "aggregator", status);
    members.text("name", out.aggregator.name);
    read_object(members, "parameters", out.aggregator.parameters);
    members.end();
  }
  in.number("quorum", out.quorum, {0, static_cast<double>(kClientsMax), kAboveLow});
  in.period("roundDeadline", out.round_deadline, kDeadlineMin, kDeadlineMax);
  in.integer("minimumClients", out.minimum_clients, 1, kClientsMax);
  in.number("fraction", out.fraction, {0, 1, kAboveLow});
  in.integer("clientsPerRound", out.clients_per_round, 0, kClientsMax);
  read_train(in, out.train);
  if (const Json* value = in.object("stop")) {
    StopSettings& stop = out.stop.emplace();
    SettingsReader members(*value, "stop", status);
    members.text("metric", stop.metric);
    read_limit(members, "atLeast", stop.at_least);
    read_limit(members, "atMost", stop.at_most);
    members.integer("patience", stop.patience, 0, kRoundsMax);
    members.end();
  }
  if (const Json* value = in.object("evaluation")) {
    SettingsReader members(*value, "evaluation", status);
    members.integer("every", out.evaluation.every, 0, kRoundsMax);
    read_object(members, "dataset", out.evaluation.dataset);
    members.end();
  }
  if (const Json* value = in.object("compression")) {
    SettingsReader members(*value, "compression", status);
    members.choice("encoding", out.compression.encoding, kCompressions);
    members.number("keep", out.compression.keep, {0, 1, kAboveLow});
    members.end();
  }
  in.choice("late", out.late, kLates);
  in.integer("bufferSize", out.buffer_size, 1, kClientsMax);
  in.integer("stalenessMax", out.staleness_max, 0, kStalenessMax);
  if (const Json* value = in.object("bounds")) {
    SettingsReader members(*value, "bounds", status);
    members.number("normMax", out.bounds.norm_max, {0, 1e30});
    members.number("normFactor", out.bounds.norm_factor, {0, 1e9});
    members.number("weightFactor", out.bounds.weight_factor, {0, 1e9});
    members.number("weightMax", out.bounds.weight_max, {0, 1e15});
    members.end();
  }
  read_object(in, "client", out.client);
  read_seed(in, out.seed);
  if (const Json* value = in.object("privacy")) read_privacy(*value, status, out.privacy.emplace());
  if (const Json* value = in.object("secureAggregation")) {
    out.secure = SecureSettings{};
    read_secure(*value, status, *out.secure);
  }
  in.end();
  TRY_VOID(std::move(status));
  TRY_VOID(check_settings(out));
  out.train.seed = out.seed;
  return out;
}

double secure_limit(const Settings& settings) {
  if (settings.secure && settings.secure->limit) return *settings.secure->limit;
  const auto& privacy = settings.privacy;
  if (!privacy) return kSecureLimit;
  // No coordinate is longer than its vector. Noise beyond six deviations is rare.
  return privacy->mode == PrivacyMode::kCentral
             ? privacy->clip
             : privacy->clip +
                   6 * privacy::local_deviation(privacy->noise_multiplier, privacy->clip);
}

double secure_weight_max(const Settings& settings) {
  return settings.bounds.weight_max > 0 ? settings.bounds.weight_max : kSecureWeightMax;
}

Json to_json(const TrainSettings& settings) {
  return Json::object({{"localEpochs", settings.local_epochs},
                       {"localSteps", settings.local_steps},
                       {"proximal", settings.proximal},
                       {"seed", static_cast<std::int64_t>(settings.seed)},
                       {"trainer", settings.trainer}});
}

Result<TrainSettings> parse_train_settings(const Json& json) {
  TrainSettings out;
  Status status;
  SettingsReader in(json, "train", status);
  read_train(in, out);
  read_seed(in, out.seed);
  in.end();
  TRY_VOID(std::move(status));
  return out;
}

Json to_json(const Settings& settings) {
  Json out =
      Json::object({{"mode", to_string(settings.mode)},
                    {"rounds", settings.rounds},
                    {"aggregator", Json::object({{"name", settings.aggregator.name},
                                                 {"parameters", settings.aggregator.parameters}})},
                    {"quorum", settings.quorum},
                    {"roundDeadline", static_cast<double>(settings.round_deadline.count()) / 1000},
                    {"minimumClients", settings.minimum_clients},
                    {"fraction", settings.fraction},
                    {"clientsPerRound", settings.clients_per_round},
                    {"localEpochs", settings.train.local_epochs},
                    {"localSteps", settings.train.local_steps},
                    {"proximal", settings.train.proximal},
                    {"trainer", settings.train.trainer}});
  if (settings.stop) {
    Json stop = Json::object({{"metric", settings.stop->metric}});
    if (settings.stop->at_least) stop.set("atLeast", *settings.stop->at_least);
    if (settings.stop->at_most) stop.set("atMost", *settings.stop->at_most);
    stop.set("patience", settings.stop->patience);
    out.set("stop", std::move(stop));
  }
  Json evaluation = Json::object({{"every", settings.evaluation.every}});
  if (settings.evaluation.dataset.is_object())
    evaluation.set("dataset", settings.evaluation.dataset);
  out.set("evaluation", std::move(evaluation));
  out.set("compression", Json::object({{"encoding", to_string(settings.compression.encoding)},
                                       {"keep", settings.compression.keep}}));
  out.set("late", to_string(settings.late));
  out.set("bufferSize", settings.buffer_size);
  out.set("stalenessMax", settings.staleness_max);
  out.set("bounds", Json::object({{"normMax", settings.bounds.norm_max},
                                  {"normFactor", settings.bounds.norm_factor},
                                  {"weightFactor", settings.bounds.weight_factor},
                                  {"weightMax", settings.bounds.weight_max}}));
  if (const auto& privacy = settings.privacy) {
    Json members = Json::object({{"mode", to_string(privacy->mode)},
                                 {"clip", privacy->clip},
                                 {"noiseMultiplier", privacy->noise_multiplier},
                                 {"delta", privacy->delta}});
    if (privacy->epsilon_max) members.set("epsilonMax", *privacy->epsilon_max);
    if (const auto& clip = privacy->adaptive_clip)
      members.set("adaptiveClip", Json::object({{"quantile", clip->quantile},
                                                {"learningRate", clip->learning_rate}}));
    out.set("privacy", std::move(members));
  }
  if (const auto& secure = settings.secure) {
    Json members = Json::object({{"neighbours", secure->neighbours}});
    if (secure->limit) members.set("limit", *secure->limit);
    if (!secure->signers.empty())
      members.set("signers", Json(Json::Array(secure->signers.begin(), secure->signers.end())));
    out.set("secureAggregation", std::move(members));
  }
  if (settings.client.is_object()) out.set("client", settings.client);
  out.set("seed", static_cast<std::int64_t>(settings.seed));
  return out;
}

}  // namespace varda::federated
