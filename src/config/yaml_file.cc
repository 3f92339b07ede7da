#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <sstream>

#include "config/input.h"
#include "config/text_value.h"

namespace megatron::config {
namespace {

bool is_marker(const std::string& line, const char* marker) {
  return line.rfind(marker, 0) == 0 && (line.size() == 3 || line[3] == ' ' || line[3] == '\t');
}

/// Line on which a second document begins, 0 if there is none. By the markers, which have their meaning at the start of
/// any line: yaml-cpp's Load reads the first document only, and its LoadAll does not end on damaged text.
int second_document(const std::string& text) {
  std::istringstream stream(text);
  bool begun = false, ended = false;
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (number == 1 && line.rfind("\xEF\xBB\xBF", 0) == 0) line.erase(0, 3);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos || line[0] == '#' || (line[0] == '%' && !begun)) continue;
    if (is_marker(line, "...")) {
      ended = begun;
    } else if (ended || (begun && is_marker(line, "---"))) {
      return number;
    } else {
      begun = true;
    }
  }
  return 0;
}

class YamlReader {
 public:
  YamlReader(const Tables& tables, std::string name, Input& input)
      : tables_(tables), name_(std::move(name)), input_(input) {}

  void read(const std::string& text) {
    if (text.find('\0') != std::string::npos) {
      input_.problems.push_back(str_cat(name_, ": holds a zero byte: not a text file"));
      return;
    }
    if (const int line = second_document(text); line > 0) {
      input_.problems.push_back(str_cat(name_, ":", line, ": a second YAML document; the file holds one"));
      return;
    }
    YAML::Node root;
    try {
      root = YAML::Load(text);
    } catch (const YAML::Exception& error) {
      input_.problems.push_back(str_cat(name_, ":", error.mark.line + 1, ": ", error.msg));
      return;
    }
    if (root.IsNull()) return;
    if (!root.IsMap()) {
      input_.problems.push_back(str_cat(name_, ":1: not a list of \"option: value\" lines"));
      return;
    }
    for (const auto& entry : root) read_entry(entry.first, entry.second);
  }

 private:
  std::string origin(const YAML::Node& node) const { return str_cat(name_, ":", node.Mark().line + 1); }

  void problem(const YAML::Node& key, const std::string& text) {
    input_.problems.push_back(
        str_cat(key.IsScalar() ? key.Scalar() : std::string("key"), " (", origin(key), "): ", text));
  }

  void read_entry(const YAML::Node& key, const YAML::Node& value) {
    if (!key.IsScalar()) return problem(key, "a key must be an option's name");
    const std::string& written = key.Scalar();
    if (!first_lines_.emplace(written, key.Mark().line + 1).second)
      return problem(key, str_cat("stands twice, first on line ", first_lines_[written]));
    if (value.IsMap()) return problem(key, "holds a nested map; the file is flat, one option a line");
    std::vector<std::string> words;
    bool is_list = value.IsSequence();
    for (const auto& item : value) {
      if (!item.IsScalar()) return problem(key, "holds a nested list");
      words.push_back(item.Scalar());
    }
    if (value.IsScalar()) words.push_back(value.Scalar());
    words.push_back(written);  // the key is looked at with its values
    const bool one_line = std::none_of(words.begin(), words.end(), has_control_character);
    words.pop_back();
    if (!one_line) {
      input_.problems.push_back(str_cat(origin(key), ": holds a line break or another control character"));
      return;
    }
    find(key, written, std::move(words), value.IsNull(), is_list);
  }

  void find(const YAML::Node& key, const std::string& written, std::vector<std::string> words, bool is_null,
            bool is_list) {
    bool negated = false;
    if (const Option* option = tables_.options.find_key(written, negated)) {
      if (!claim(key, option->name)) return;
      if (!is_null) read_known(key, *option, std::move(words), negated, is_list);
    } else if (const ForeignOption* foreign = tables_.foreign.find_key(written, negated)) {
      if (!claim(key, foreign->names.front())) return;
      if (!is_null) read_foreign(key, *foreign, std::move(words), negated);
    } else {
      input_.unknown.push_back({written, written, std::move(words), origin(key)});
    }
  }

  /// Two keys for one option: both at once is an error.
  bool claim(const YAML::Node& key, const std::string& option) {
    const auto [it, is_new] = claimed_.emplace(option, key.Scalar());
    if (!is_new) problem(key, str_cat("names the same option as ", it->second, ": ", option));
    return is_new;
  }

  void read_known(const YAML::Node& key, const Option& option, std::vector<std::string> words, bool negated,
                  bool is_list) {
    if (is_list && option.form != Form::list) return problem(key, "takes one value, not a list");
    if (option.type == Type::truth) {
      const auto truth = words.empty() ? std::nullopt : parse_truth(words.front());
      if (!truth) return problem(key, str_cat(words.empty() ? "" : words.front() + " ", "is neither True nor False"));
      words = {*truth != negated ? "true" : "false"};
    }
    if (option.form == Form::list && !is_list) words = split_words(words);
    if (option.type == Type::text && std::find(words.begin(), words.end(), "") != words.end())
      return problem(key, "the value is empty");
    input_.known.push_back({option.name, key.Scalar(), std::move(words), origin(key)});
  }

  void read_foreign(const YAML::Node& key, const ForeignOption& option, std::vector<std::string> words, bool negated) {
    if (option.is_switch) {
      const auto truth = words.size() == 1 ? parse_truth(words.front()) : std::nullopt;
      if (!truth) return problem(key, "is neither True nor False");
      if (*truth == negated) return;  // off: as if it were not there
      words.clear();
    }
    input_.foreign.push_back({option.names.front(), key.Scalar(), std::move(words), origin(key)});
  }

  /// `data_path: 0.3 a 0.7 b` means the same as on the command line.
  static std::vector<std::string> split_words(const std::vector<std::string>& words) {
    std::vector<std::string> out;
    for (const std::string& text : words) {
      std::istringstream stream(text);
      for (std::string word; stream >> word;) out.push_back(word);
    }
    return out;
  }

  const Tables& tables_;
  std::string name_;
  Input& input_;
  std::map<std::string, int> first_lines_;
  std::map<std::string, std::string> claimed_;
};

}  // namespace

void read_yaml_text(const Tables& tables, const std::string& text, const std::string& name, Input& input) {
  YamlReader(tables, name, input).read(text);
}

void read_yaml_file(const Tables& tables, const std::string& path, Input& input) {
  std::string text;
  // C streams tell an empty file from one that cannot be read, such as a folder.
  std::FILE* const file = std::fopen(path.c_str(), "rb");
  bool failed = file == nullptr;
  if (file != nullptr) {
    char buffer[16384];
    for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof(buffer), file)) > 0;) text.append(buffer, n);
    failed = std::ferror(file) != 0;
  }
  const int reason = errno;
  if (file != nullptr) std::fclose(file);
  if (failed)
    input.problems.push_back(str_cat("--config ", path, ": cannot be read: ", std::strerror(reason)));
  else
    read_yaml_text(tables, text, path, input);
}

}  // namespace megatron::config
