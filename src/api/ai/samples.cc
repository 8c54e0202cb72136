#include "api/ai/samples.h"

#include <algorithm>

#include "api/describe.h"
#include "codec/text.h"
#include "meta/quantity.h"

namespace varda::api {

namespace {

constexpr std::size_t kScoreRanges = 20;

std::int64_t count_of(const Json& value) { return std::max<std::int64_t>(value.as_integer(), 0); }

}  // namespace

void PseudoLabelSettings::describe(Type<PseudoLabelSettings>& t) {
  t.doc("Labels by a bigger model.");
  t.field("minimum", &PseudoLabelSettings::minimum,
          "Score of the best class from which the bigger model's answer is a label. Default: 0.9.")
      .range(0, 1);
  t.keep_unknown(&PseudoLabelSettings::unknown);
}

void SampleSettings::describe(Type<SampleSettings>& t) {
  using S = SampleSettings;
  t.doc("Requests that the server keeps on its node, for labelling and training.");
  t.field("hardExampleMining", &S::hard_example_mining,
          "Decides which requests are hard, and kept. Default: the policy of the first tier of a "
          "JointInferenceService, else none.");
  t.field(
       "bytesMax", &S::bytes_max,
       "Limit of the kept samples' bytes, as 64Mi. Default: 64Mi. Beyond it, new samples replace "
       "kept ones.")
      .length(0, 20)
      .pattern(std::string(kBytesPattern));
  t.field("countMax", &S::count_max, "Limit of the number of kept samples. Default: 1000.")
      .format("int64")
      .range(1, 1'000'000);
  t.field("controlShare", &S::control_share,
          "Share of the requests that are not hard, chosen at random, that are kept too. Default: 0.")
      .range(0, 1);
  t.field("replacement", &S::replacement,
          "Which samples stay when a limit is reached. class-balanced: equally many of each "
          "predicted class. reservoir: all samples equally likely. Default: class-balanced.")
      .one_of({"class-balanced", "reservoir"});
  t.field("pseudoLabels", &S::pseudo_labels,
          "The answer of a later tier of a JointInferenceService becomes the label of a kept "
          "sample. Default: only people label.");
  t.keep_unknown(&S::unknown);
}

Json samples_file(const SampleSettings& settings, const HardExampleMining* fallback) {
  const double bytes = meta::quantity_value(settings.bytes_max)
                           .value_or(static_cast<double>(SampleSettings::kDefaultBytesMax));
  constexpr double kBytesMax = 1e15;
  Json out =
      Json::object({{"version", 1},
                    {"bytesMax", static_cast<std::int64_t>(std::clamp(bytes, 0.0, kBytesMax))},
                    {"countMax", settings.count_max.value_or(SampleSettings::kDefaultCountMax)},
                    {"controlShare", settings.control_share.value_or(0)},
                    {"replacement", settings.replacement.empty() ? std::string("class-balanced")
                                                                 : settings.replacement}});
  const HardExampleMining* policy =
      settings.hard_example_mining ? &*settings.hard_example_mining : fallback;
  if (policy != nullptr) {
    Json parameters = Json::object();
    for (const MiningParameter& parameter : policy->parameters)
      parameters.set(parameter.key, parameter.value);
    out.set("policy",
            Json::object({{"name", policy->name}, {"parameters", std::move(parameters)}}));
  }
  if (settings.pseudo_labels)
    out.set("pseudoLabels", Json::object({{"minimum", settings.pseudo_labels->minimum.value_or(
                                                          PseudoLabelSettings::kDefaultMinimum)}}));
  return out;
}

SampleReport SampleReport::from_server(const Json& answer) {
  SampleReport out;
  out.version = codec::clipped(answer["version"].as_string(), 63);
  out.answers = count_of(answer["answers"]);
  out.failures = count_of(answer["failures"]);
  out.hard = count_of(answer["hard"]);
  out.kept = count_of(answer["kept"]);
  out.dropped = count_of(answer["dropped"]);
  out.pending = count_of(answer["pending"]);
  out.bytes = count_of(answer["bytes"]);
  for (const Json& score : answer["scores"].as_array()) {
    if (out.scores.size() == kScoreRanges) break;
    out.scores.push_back(count_of(score));
  }
  out.since = codec::clipped(answer["since"].as_string(), 40);
  out.reason = codec::clipped(answer["problem"]["reason"].as_string(), 128);
  out.message = codec::clipped(answer["problem"]["message"].as_string(), 1024);
  return out;
}

void SampleReport::describe(Type<SampleReport>& t) {
  using R = SampleReport;
  t.doc("Counts of the server since the version began to serve with the settings.");
  t.field("version", &R::version, "The version that serves.").length(0, 63);
  t.field("answers", &R::answers, "Number of answered requests.").format("int64").always();
  t.field("failures", &R::failures,
          "Number of requests without an answer, except for mistakes of clients.")
      .format("int64")
      .always();
  t.field("hard", &R::hard, "Number of answers that the policy calls hard.")
      .format("int64")
      .always();
  t.field("kept", &R::kept, "Number of samples written to the disk.").format("int64").always();
  t.field("dropped", &R::dropped,
          "Number of requests that could not be kept: the disk was too slow, or failed.")
      .format("int64");
  t.field("pending", &R::pending, "Number of samples on the disk that have no label yet.")
      .format("int64")
      .always();
  t.field("bytes", &R::bytes, "Bytes of those samples.").format("int64");
  t.field("scores", &R::scores,
          "Number of samples by the score of the best class, in 20 equal ranges from 0 to 1.")
      .items_max(kScoreRanges);
  t.field("since", &R::since, "Time from which the server counts, by the node's clock.")
      .length(0, 40);
  t.field("reason", &R::reason,
          "Reason why samples are not kept, one word: PolicyMismatch, SpoolUnavailable, DiskFull, "
          "WriteFailed, Unsupported or Invalid.")
      .length(0, 128);
  t.field("message", &R::message, "Human-readable explanation.").length(0, 4096);
  t.keep_unknown(&R::unknown);
}

}  // namespace varda::api
