#include "controllers/federatedlearning/report.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "codec/text.h"

namespace varda::controllers::federatedlearning {

namespace {

using api::FederatedLearningJobStatus;
using api::FederatedParticipant;
using codec::Json;
using runs::count_of;
using runs::number_of;

constexpr std::size_t kReportedReasonMax = 128;
constexpr std::size_t kTextMax = 1024;
constexpr std::size_t kRoundMetricsMax = 16;  // as in the status
constexpr std::size_t kDigestMax = 64;

template <std::size_t N>
bool is_one_of(std::string_view text, const std::string_view (&known)[N]) {
  return std::find(std::begin(known), std::end(known), text) != std::end(known);
}

constexpr std::string_view kPhases[] = {
    FederatedLearningJobStatus::kWaiting, FederatedLearningJobStatus::kTraining,
    FederatedLearningJobStatus::kAggregating, FederatedLearningJobStatus::kEvaluating,
    FederatedLearningJobStatus::kUploading};
constexpr std::string_view kStates[] = {
    FederatedParticipant::kJoined, FederatedParticipant::kTraining, FederatedParticipant::kUploaded,
    FederatedParticipant::kDropped, FederatedParticipant::kEnded};

// "Training", "Dropped: NotFinite"
void add_participants(const Json& states, std::string_view ns, AggregatorReport& out) {
  for (const auto& [worker, value] : states.as_object()) {
    std::string_view name = worker;
    if (!name.starts_with(ns)) continue;
    name.remove_prefix(ns.size());
    if (out.participants.size() >= FederatedLearningJobStatus::kParticipantsMax) return;
    std::string_view text = value.as_string(), reason;
    if (const auto colon = text.find(": "); colon != std::string_view::npos) {
      reason = text.substr(colon + 2);
      text = text.substr(0, colon);
    }
    if (!is_one_of(text, kStates)) continue;
    out.participants[std::string(name)] = {std::string(text),
                                           codec::clipped(reason, kReportedReasonMax)};
  }
}

std::vector<api::FederatedRound> history_of(const Json& list) {
  std::vector<api::FederatedRound> out;
  std::set<std::int64_t> seen;
  for (const Json& one : list.as_array()) {
    api::FederatedRound round;
    round.round = count_of(one["round"]);
    if (round.round == 0 || !seen.insert(round.round).second) continue;
    round.participants = count_of(one["participants"]);
    round.dropped = count_of(one["dropped"]);
    round.seconds = number_of(one["seconds"]);
    round.metrics = runs::numbers_of(one["metrics"], kRoundMetricsMax);
    out.push_back(std::move(round));
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.round < b.round; });
  if (out.size() > FederatedLearningJobStatus::kHistoryMax)
    out.erase(out.begin(), out.end() - FederatedLearningJobStatus::kHistoryMax);
  return out;
}

}  // namespace

AggregatorReport read_report(const api::EdgeNode* node, const std::string& key,
                             std::string_view uid) {
  AggregatorReport out;
  const Json* found = runs::find_report(node, key, uid);
  if (found == nullptr) return out;
  const Json& report = *found;
  out.cut = report.contains("cut");
  const Json& progress = report["progress"];
  const Json& data = progress["data"];
  out.present = progress.is_object();
  if (const std::string& phase = progress["phase"].as_string(); is_one_of(phase, kPhases))
    out.phase = phase;
  out.message = codec::clipped(progress["message"].as_string(), kTextMax);
  out.round = count_of(data["round"].is_null() ? progress["step"] : data["round"]);
  out.rounds = count_of(data["rounds"].is_null() ? progress["steps"] : data["rounds"]);
  out.joined = count_of(data["joined"]);
  out.bytes_up = count_of(data["bytesUp"]);
  out.bytes_down = count_of(data["bytesDown"]);
  out.epsilon = number_of(data["epsilon"]);
  for (const auto& [name, text] :
       runs::numbers_of(data["metrics"], FederatedLearningJobStatus::kMetricsMax))
    out.metrics.push_back({name, text, {}});
  const std::string ns = key.substr(0, key.find('/') + 1);
  // The later report of the two wins, which is the progress.
  add_participants(report.at("results/rounds/data/participants"), ns, out);
  add_participants(data["participants"], ns, out);
  out.history = history_of(report.at("results/rounds/data/history"));
  out.result = runs::result_of(report);
  if (out.result) {
    const Json& final = report.at("results/final/data");
    out.result_participants = count_of(final["participants"]);
    // The last progress may be older than the end.
    out.round = std::max(out.round, count_of(final["rounds"]));
    out.updates_digest = codec::clipped(final["updatesSha256"].as_string(), kDigestMax);
    if (!final["epsilon"].is_null()) out.epsilon = number_of(final["epsilon"]);
  }
  out.error = runs::error_of(report);
  return out;
}

}  // namespace varda::controllers::federatedlearning
