#include "html_report.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "../html_page.h"

namespace varda::aggregate {
namespace {

using aggregator::Snapshot;
using app::card;
using app::escaped;
using app::four_digits;
using app::row;
using federated::RoundRecord;

constexpr std::size_t kRowsMax = 200;

std::string text_of_bytes(std::uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (value < 1e3) return four_digits(value) + " B";
  if (value < 1e6) return four_digits(value / 1e3) + " kB";
  if (value < 1e9) return four_digits(value / 1e6) + " MB";
  return four_digits(value / 1e9) + " GB";
}

std::string cell_of(const std::string& text) {
  return "<td class=\"n\">" + escaped(text) + "</td>";
}

/// The evaluation; without one, the training.
const federated::Metrics& metrics_of(const RoundRecord& record) {
  return record.evaluation.empty() ? record.training : record.evaluation;
}

/// The metric that people compare: one that is not the loss, if there is one.
std::string chief_metric(const std::vector<RoundRecord>& history) {
  std::string out;
  for (const RoundRecord& record : history)
    for (const auto& [name, value] : record.evaluation)
      if (name != "loss" && (out.empty() || name == "accuracy")) out = name;
  return out;
}

template <typename Value>
app::Curve curve_of(const std::vector<RoundRecord>& history, std::string name, Value value) {
  app::Curve out{.name = std::move(name), .points = {}};
  for (const RoundRecord& record : history) {
    const std::optional<double> y = value(record);
    if (y && std::isfinite(*y)) out.points.push_back({static_cast<double>(record.round), *y});
  }
  out.points = app::thinned(out.points);
  return out;
}

std::optional<double> value_of(const federated::Metrics& metrics, const std::string& name) {
  const auto found = metrics.find(name);
  return found == metrics.end() ? std::nullopt : std::optional(found->second);
}

std::string curves_of(const std::vector<RoundRecord>& history) {
  std::string out;
  if (const std::string metric = chief_metric(history); !metric.empty()) {
    out += app::drawing("Evaluation: " + metric, "round",
                        {curve_of(history, metric, [&](const RoundRecord& one) {
                          return value_of(one.evaluation, metric);
                        })});
  }
  out += app::drawing(
      "Loss", "round",
      {curve_of(history, "training",
                [](const RoundRecord& one) { return value_of(one.training, "loss"); }),
       curve_of(history, "evaluation",
                [](const RoundRecord& one) { return value_of(one.evaluation, "loss"); })});
  out += app::drawing("Updates", "round",
                      {curve_of(history, "count",
                                [](const RoundRecord& one) {
                                  return std::optional(static_cast<double>(one.updates));
                                }),
                       curve_of(history, "refused or late", [](const RoundRecord& one) {
                         return std::optional(static_cast<double>(
                             std::max<std::int64_t>(0, one.clients - one.updates)));
                       })});
  return out.empty() ? "<p>The job has no complete round.</p>\n"
                     : "<div class=\"curves\">\n" + out + "</div>\n";
}

std::string rounds_of(const std::vector<RoundRecord>& history) {
  if (history.empty()) return "";
  const std::size_t first = history.size() > kRowsMax ? history.size() - kRowsMax : 0;
  std::string out =
      "<h2>Rounds</h2>\n<div class=\"wide\"><table class=\"list\"><tr><th class=\"n\">round</th>"
      "<th class=\"n\">clients</th><th class=\"n\">updates</th><th class=\"n\">refused</th>"
      "<th class=\"n\">samples</th><th class=\"n\">seconds</th><th>metrics</th></tr>\n";
  for (std::size_t i = first; i < history.size(); ++i) {
    const RoundRecord& one = history[i];
    std::string metrics;
    for (const auto& [name, value] : metrics_of(one))
      metrics += (metrics.empty() ? "" : ", ") + name + " " + four_digits(value);
    out += "<tr>" + cell_of(std::to_string(one.round)) + cell_of(std::to_string(one.clients)) +
           cell_of(std::to_string(one.updates)) + cell_of(std::to_string(one.refused)) +
           cell_of(four_digits(one.samples)) + cell_of(four_digits(one.seconds)) + "<td>" +
           escaped(metrics) + "</td></tr>\n";
  }
  out += "</table></div>\n";
  if (first > 0) out += "<p>metrics.csv has the earlier rounds.</p>\n";
  return out;
}

std::string clients_of(const Snapshot& job) {
  if (job.clients.empty()) return "";
  std::string out =
      "<h2>Clients</h2>\n<table class=\"list\"><tr><th>client</th><th>state</th></tr>\n";
  for (std::size_t i = 0; i < std::min(kRowsMax, job.clients.size()); ++i) {
    const auto& client = job.clients[i];
    const std::string reason = client.reason.empty() ? "" : ": " + client.reason;
    out += row(client.name, std::string(to_string(client.state)) + reason);
  }
  out += "</table>\n";
  if (job.clients.size() > kRowsMax)
    out += "<p>" + std::to_string(job.clients.size() - kRowsMax) + " more clients.</p>\n";
  return out;
}

std::string facts_of(const Snapshot& job, const federated::Settings& settings) {
  std::string out =
      "<h2>Job</h2>\n<table class=\"list\">\n" + row("job", job.job) +
      row("end", job.reason + (job.message.empty() ? "" : ": " + job.message)) +
      row("rule", settings.aggregator.name) +
      row("encoding of updates", std::string(to_string(settings.compression.encoding))) +
      row("received from clients", text_of_bytes(job.received_bytes)) +
      row("sent to clients", text_of_bytes(job.sent_bytes));
  if (job.epsilon) out += row("epsilon spent", four_digits(*job.epsilon));
  return out + row("SHA-256 of the weights", job.model) +
         row("SHA-256 of all updates", job.updates_digest) + row("varda-aggregate", VARDA_VERSION) +
         "</table>\n";
}

}  // namespace

std::string html_report(const Snapshot& job, const federated::Settings& settings) {
  std::string out = app::html_head("Federated training") + "<h1>Federated training</h1>\n";
  if (job.failed)
    out += "<p>The job failed. " + escaped(job.reason + ": " + job.message) + "</p>\n";
  out += "<div class=\"cards\">\n";
  for (auto at = job.history.rbegin(); at != job.history.rend(); ++at) {
    if (at->evaluation.empty()) continue;
    for (const auto& [name, value] : at->evaluation) out += card(name, four_digits(value));
    break;
  }
  out += card("rounds", std::to_string(job.history.size())) +
         card("clients", std::to_string(job.clients.size())) +
         card("from clients", text_of_bytes(job.received_bytes)) +
         card("to clients", text_of_bytes(job.sent_bytes)) + "</div>\n";
  out += "<h2>Curves</h2>\n" + curves_of(job.history) + rounds_of(job.history) + clients_of(job) +
         facts_of(job, settings);
  return out + "</body>\n</html>\n";
}

}  // namespace varda::aggregate
