#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "codec/text.h"
#include "worker.h"

namespace varda::aggregate {
namespace {

using aggregator::Snapshot;
using codec::Json;
using federated::RoundMachine;

constexpr std::size_t kProgressBytesMax = 4000;    // the agent accepts 4 KiB
constexpr std::size_t kRoundsBytesMax = 28 << 10;  // the agent accepts 32 KiB
constexpr std::size_t kHistoryShown = 32;

/// Four digits keep reports small.
Json short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return std::strtod(text, nullptr);
}

Json metrics_json(const federated::Metrics& metrics) {
  Json out = Json::object();
  for (const auto& [name, value] : metrics)
    if (std::isfinite(value) && codec::is_utf8(name)) out.set(name, short_number(value));
  return out;
}

/// The metrics of the last evaluation, or of the training without one.
const federated::Metrics* last_metrics(const Snapshot& snapshot) {
  for (auto at = snapshot.history.rbegin(); at != snapshot.history.rend(); ++at)
    if (!at->evaluation.empty()) return &at->evaluation;
  return snapshot.history.empty() ? nullptr : &snapshot.history.back().training;
}

/// "not_finite: tensor w" -> "NotFinite"
std::string reason_word(const std::string& reason) {
  std::string out;
  bool upper = true;
  for (const char c : reason.substr(0, reason.find(':'))) {
    if (c == '_' || c == ' ') {
      upper = true;
      continue;
    }
    out += upper && c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
    upper = false;
  }
  return out.empty() ? "Refused" : out;
}

std::string state_text(const RoundMachine::Client& client, const Snapshot& snapshot) {
  using State = RoundMachine::ClientState;
  if (snapshot.phase == RoundMachine::Phase::kFinished && client.state != State::kExcluded)
    return "Ended";
  switch (client.state) {
    case State::kIdle:
      return "Joined";
    case State::kTraining:
      return "Training";
    case State::kUploaded:
      return "Uploaded";
    case State::kLost:
      return "Dropped: Lost";
    case State::kRefused:
      return "Dropped: " + reason_word(client.reason);
    case State::kExcluded:
      return "Dropped: Excluded";
  }
  return "Joined";
}

Json participants_json(const Snapshot& snapshot) {
  Json out = Json::object();
  for (const auto& client : snapshot.clients) out.set(client.name, state_text(client, snapshot));
  return out;
}

}  // namespace

Json progress_body(const Snapshot& snapshot) {
  const bool finished = snapshot.phase == RoundMachine::Phase::kFinished;
  Json data = Json::object({{"joined", snapshot.present},
                            {"bytesUp", snapshot.received_bytes},
                            {"bytesDown", snapshot.sent_bytes}});
  if (const auto* metrics = last_metrics(snapshot)) data.set("metrics", metrics_json(*metrics));
  data.set("participants", participants_json(snapshot));
  if (codec::write_json(data).size() > kProgressBytesMax) data.erase("participants");
  if (codec::write_json(data).size() > kProgressBytesMax) data.erase("metrics");
  return Json::object({{"phase", finished ? "Uploading" : to_string(snapshot.phase)},
                       {"step", std::min(snapshot.round, snapshot.rounds)},
                       {"steps", snapshot.rounds},
                       {"data", std::move(data)}});
}

Json rounds_body(const Snapshot& snapshot) {
  std::size_t shown = std::min(kHistoryShown, snapshot.history.size());
  bool with_participants = true;
  while (true) {
    Json history = Json::array();
    for (std::size_t i = snapshot.history.size() - shown; i < snapshot.history.size(); ++i) {
      const federated::RoundRecord& record = snapshot.history[i];
      history.push_back(Json::object(
          {{"round", record.round},
           {"participants", record.updates},
           {"dropped", std::max<std::int64_t>(0, record.clients - record.updates)},
           {"seconds", short_number(record.seconds)},
           {"metrics",
            metrics_json(record.evaluation.empty() ? record.training : record.evaluation)}}));
    }
    Json data = Json::object({{"history", std::move(history)}});
    if (with_participants) data.set("participants", participants_json(snapshot));
    if (codec::write_json(data).size() <= kRoundsBytesMax || shown <= 1)
      return Json::object({{"data", std::move(data)}});
    if (with_participants)
      with_participants = false;
    else
      shown /= 2;
  }
}

Json final_body(const Snapshot& snapshot, const ResultFiles& files) {
  Json data = Json::object({{"artifact", files.artifact},
                            {"format", files.format},
                            {"report", files.report},
                            {"csv", files.csv},
                            {"updatesSha256", snapshot.updates_digest},
                            {"rounds", snapshot.history.size()},
                            {"reason", snapshot.reason}});
  if (!files.file.empty()) data.set("file", files.file);
  if (const auto* metrics = last_metrics(snapshot)) data.set("metrics", metrics_json(*metrics));
  if (!snapshot.history.empty()) {
    data.set("samples", static_cast<std::int64_t>(snapshot.history.back().samples));
    data.set("participants", snapshot.history.back().updates);
  }
  return Json::object({{"data", std::move(data)}});
}

}  // namespace varda::aggregate
