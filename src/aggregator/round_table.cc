#include "aggregator/round_table.h"

#include <cstdint>
#include <set>

#include "codec/json.h"

namespace varda::aggregator {

using codec::Json;
using federated::Metrics;
using federated::RoundRecord;

std::string round_table(const std::vector<RoundRecord>& history) {
  std::set<std::string> training, evaluation;
  for (const RoundRecord& record : history) {
    for (const auto& [name, value] : record.training) training.insert(name);
    for (const auto& [name, value] : record.evaluation) evaluation.insert(name);
  }
  const auto quoted = [](const std::string& name) {
    if (name.find_first_of(",\"\r\n") == std::string::npos) return name;
    std::string out = "\"";
    for (const char c : name) out += c == '"' ? std::string("\"\"") : std::string(1, c);
    return out + "\"";
  };
  std::string out = "round,attempts,clients,updates,refused,samples,seconds,model";
  for (const std::string& name : training) out += "," + quoted("train_" + name);
  for (const std::string& name : evaluation) out += "," + quoted(name);
  out += "\n";
  const auto number = [](double value) { return codec::write_json(Json(value)); };
  for (const RoundRecord& record : history) {
    for (const std::int64_t value :
         {record.round, record.attempts, record.clients, record.updates, record.refused})
      out += std::to_string(value) + ",";
    out += number(record.samples) + "," + number(record.seconds) + "," + record.model;
    const auto cell = [&](const Metrics& metrics, const std::string& name) {
      const auto at = metrics.find(name);
      out += at == metrics.end() ? "," : "," + number(at->second);
    };
    for (const std::string& name : training) cell(record.training, name);
    for (const std::string& name : evaluation) cell(record.evaluation, name);
    out += "\n";
  }
  return out;
}

}  // namespace varda::aggregator
