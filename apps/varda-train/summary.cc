#include "summary.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/text.h"
#include "text.h"

namespace varda::trainapp {
namespace {

/// A word of a shell command.
std::string quoted(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("/._-+=:,@%").find(c) != std::string_view::npos;
  });
  if (plain) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// A name of Kubernetes for the Model: "digits" for digits.onnx and digits/models/3/model.onnx.
std::string model_name(os::Path path) {
  std::string name;
  for (path = path.lexically_normal(); !path.empty() && path != path.root_path();
       path = path.parent_path()) {
    name = lower(path.stem().string());
    const bool number = std::all_of(name.begin(), name.end(), [](char c) {
      return std::isdigit(static_cast<unsigned char>(c)) != 0;
    });
    if (name != "model" && name != "models" && !number) break;
    name.clear();
  }
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '-';
  while (name.starts_with('-')) name.erase(0, 1);
  while (name.ends_with('-')) name.pop_back();
  return name.empty() ? "NAME" : name;
}

}  // namespace

std::string metric_of(const training::Settings& settings) {
  return settings.early_stopping ? settings.early_stopping->metric : "";
}

std::string evaluation_text(const Job& job) {
  return job.evaluation ? job.evaluation->path.string()
                        : number(job.hold_out * 100) + "% of the data";
}

std::string summary(const Job& job, const Trained& trained) {
  const training::Outcome& outcome = trained.outcome;
  std::string out = "trained " + grouped(outcome.history.size()) + " epochs in " +
                    time_span(outcome.seconds) +
                    (outcome.stopped_early ? " (early stopping)\n" : "\n");
  std::string push =
      "varda push " + quoted(job.directory.string()) + " --name " + model_name(job.model);
  std::size_t width = 10;
  for (const auto& [name, value] : outcome.metrics) width = std::max(width, name.size());
  const auto line = [&](const std::string& name, const std::string& value) {
    out += "  " + name + std::string(width + 2 - name.size(), ' ') + value + "\n";
  };
  for (const auto& [name, value] : outcome.metrics) line(name, number(value));
  line("model", outcome.model.string());
  line("report", (job.directory / "report.html").string());
  const auto metric = main_metric(outcome.metrics, metric_of(job.settings));
  if (!metric.first.empty()) push += " --metric " + metric.first + "=" + number(metric.second);
  return out + "next: " + push + "\n";
}

}  // namespace varda::trainapp
