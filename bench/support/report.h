// Figures with references: a Markdown table for people, JSON for programs.
#pragma once

#include <string>
#include <vector>

namespace varda::bench {

struct Figure {
  std::string what;
  double measured = 0;
  double reference = 0;  // 0: none
  std::string unit;      // of both values
  std::string against;   // description of the reference
  double ratio = 0;      // `measured` relative to the reference, as in the aim; 0: none
  std::string aim;       // "≤ 1.5x"; "": no aim
  bool met = true;
};

class Report {
 public:
  explicit Report(std::string name) : name_(std::move(name)) {}
  void add(Figure figure) { figures_.push_back(std::move(figure)); }
  void note(std::string text) { notes_.push_back(std::move(text)); }
  /// Prints to standard output, and as JSON to `file` unless it is empty.
  void print(const std::string& file) const;

 private:
  std::string name_;
  std::vector<Figure> figures_;
  std::vector<std::string> notes_;
};

double median(std::vector<double> values);
/// `share` from 0 to 1.
double percentile(std::vector<double> values, double share);

}  // namespace varda::bench
