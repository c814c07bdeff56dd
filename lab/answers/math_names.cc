#include "lab/answers/math_names.h"

#include <algorithm>
#include <array>
#include <span>

namespace ebb {
namespace {

using enum MathTokenKind;

// "text" stands for \text{...} and its kin.
constexpr MathName kCommands[] = {
    {"frac", kFunction, "frac"},
    {"dfrac", kFunction, "frac"},
    {"tfrac", kFunction, "frac"},
    {"cfrac", kFunction, "frac"},
    {"sqrt", kFunction, "sqrt"},
    {"binom", kFunction, "binom"},
    {"dbinom", kFunction, "binom"},
    {"tbinom", kFunction, "binom"},
    {"sin", kFunction, "sin"},
    {"cos", kFunction, "cos"},
    {"tan", kFunction, "tan"},
    {"cot", kFunction, "cot"},
    {"sec", kFunction, "sec"},
    {"csc", kFunction, "csc"},
    {"arcsin", kFunction, "arcsin"},
    {"arccos", kFunction, "arccos"},
    {"arctan", kFunction, "arctan"},
    {"ln", kFunction, "ln"},
    {"log", kFunction, "log"},
    {"exp", kFunction, "exp"},
    {"pi", kName, "pi"},
    {"infty", kName, "infinity"},
    {"emptyset", kName, "emptyset"},
    {"varnothing", kName, "emptyset"},
    {"alpha", kName, "alpha"},
    {"beta", kName, "beta"},
    {"gamma", kName, "gamma"},
    {"delta", kName, "delta"},
    {"epsilon", kName, "epsilon"},
    {"theta", kName, "theta"},
    {"lambda", kName, "lambda"},
    {"mu", kName, "mu"},
    {"rho", kName, "rho"},
    {"sigma", kName, "sigma"},
    {"tau", kName, "tau"},
    {"phi", kName, "phi"},
    {"varphi", kName, "phi"},
    {"omega", kName, "omega"},
    {"zeta", kName, "zeta"},
    {"cdot", kSymbol, "*"},
    {"times", kSymbol, "*"},
    {"ast", kSymbol, "*"},
    {"div", kSymbol, "/"},
    {"pm", kSymbol, "pm"},
    {"mp", kSymbol, "mp"},
    {"le", kSymbol, "<="},
    {"leq", kSymbol, "<="},
    {"leqslant", kSymbol, "<="},
    {"ge", kSymbol, ">="},
    {"geq", kSymbol, ">="},
    {"geqslant", kSymbol, ">="},
    {"lt", kSymbol, "<"},
    {"gt", kSymbol, ">"},
    {"ne", kSymbol, "!="},
    {"neq", kSymbol, "!="},
    {"in", kSymbol, "in"},
    {"cup", kSymbol, "cup"},
    {"cap", kSymbol, "cap"},
    {"lvert", kSymbol, "|"},
    {"rvert", kSymbol, "|"},
    {"vert", kSymbol, "|"},
    {"mid", kSymbol, "|"},
    {"%", kSymbol, "%"},
    {"\\", kSymbol, "\\\\"},
    {"cr", kSymbol, "\\\\"},
    {"circ", kSymbol, "degree"},
    {"degree", kSymbol, "degree"},
    {"approx", kSymbol, "approx"},
    {"equiv", kSymbol, "="},
    {"text", kSymbol, "text"},
    {"mbox", kSymbol, "text"},
    {"mathrm", kSymbol, "text"},
    {"textbf", kSymbol, "text"},
    {"textrm", kSymbol, "text"},
    {"textit", kSymbol, "text"},
    {"textnormal", kSymbol, "text"},
    {"operatorname", kSymbol, "text"},
    {"mathsf", kSymbol, "text"},
    {"textsf", kSymbol, "text"},
    {"hbox", kSymbol, "text"},
    {"left", kOther, ""},
    {"right", kOther, ""},
    {"big", kOther, ""},
    {"Big", kOther, ""},
    {"bigg", kOther, ""},
    {"Bigg", kOther, ""},
    {"bigl", kOther, ""},
    {"bigr", kOther, ""},
    {"Bigl", kOther, ""},
    {"Bigr", kOther, ""},
    {"displaystyle", kOther, ""},
    {"textstyle", kOther, ""},
    {"limits", kOther, ""},
    {"quad", kOther, ""},
    {"qquad", kOther, ""},
    {"mathbf", kOther, ""},
    {"mathit", kOther, ""},
    {"boldsymbol", kOther, ""},
    {"boxed", kOther, ""},
    {"fbox", kOther, ""},
    {"rm", kOther, ""},
    {"bf", kOther, ""},
    {"it", kOther, ""},
    {",", kOther, ""},
    {";", kOther, ""},
    {":", kOther, ""},
    {"!", kOther, ""},
    {">", kOther, ""},
    {" ", kOther, ""},
    {"$", kOther, ""},
    {"(", kOther, ""},
    {")", kOther, ""},
    {"[", kOther, ""},
    {"]", kOther, ""},
    {"pounds", kOther, ""},
};

constexpr MathName kWords[] = {
    {"sqrt", kFunction, "sqrt"},
    {"sin", kFunction, "sin"},
    {"cos", kFunction, "cos"},
    {"tan", kFunction, "tan"},
    {"cot", kFunction, "cot"},
    {"csc", kFunction, "csc"},
    {"ln", kFunction, "ln"},
    {"log", kFunction, "log"},
    {"exp", kFunction, "exp"},
    {"arcsin", kFunction, "arcsin"},
    {"arccos", kFunction, "arccos"},
    {"arctan", kFunction, "arctan"},
    {"pi", kName, "pi"},
    {"infinity", kName, "infinity"},
    {"inf", kName, "infinity"},
    {"and", kSymbol, ","},
    {"or", kSymbol, ","},
    {"percent", kSymbol, "%"},
};

constexpr MathName kUnicode[] = {
    {"−", kSymbol, "-"},      {"–", kSymbol, "-"},      {"×", kSymbol, "*"},
    {"·", kSymbol, "*"},      {"⋅", kSymbol, "*"},      {"÷", kSymbol, "/"},
    {"π", kName, "pi"},       {"∞", kName, "infinity"}, {"√", kFunction, "sqrt"},
    {"°", kSymbol, "degree"}, {"≤", kSymbol, "<="},     {"≥", kSymbol, ">="},
    {"≠", kSymbol, "!="},     {"∈", kSymbol, "in"},     {"∪", kSymbol, "cup"},
    {"∩", kSymbol, "cap"},    {"±", kSymbol, "pm"},     {"≈", kSymbol, "approx"},
    {"²", kSymbol, "^2"},     {"³", kSymbol, "^3"},     {"θ", kName, "theta"},
    {"∅", kName, "emptyset"}, {"€", kOther, ""},        {"£", kOther, ""},
    {"¥", kOther, ""},        {"\u00a0", kOther, ""},   {"\u2009", kOther, ""},
    {"\u202f", kOther, ""},
};

constexpr std::string_view kUnits[] = {
    "acres",      "bushels", "celsius",    "cent",    "centimeter", "centimeters", "cents",
    "cm",         "cubic",   "day",        "days",    "degree",     "degrees",     "dollar",
    "dollars",    "euros",   "fahrenheit", "feet",    "foot",       "ft",          "gallon",
    "gallons",    "gram",    "grams",      "hour",    "hours",      "hr",          "hrs",
    "in",         "inch",    "inches",     "kg",      "kilogram",   "kilograms",   "kilometer",
    "kilometers", "km",      "kmh",        "lb",      "lbs",        "liter",       "liters",
    "litres",     "meter",   "meters",     "metres",  "mg",         "mi",          "mile",
    "miles",      "min",     "minute",     "minutes", "ml",         "mm",          "month",
    "months",     "mph",     "ounce",      "ounces",  "oz",         "pence",       "per",
    "people",     "pound",   "pounds",     "radians", "sec",        "second",      "seconds",
    "square",     "ton",     "tons",       "unit",    "units",      "usd",         "week",
    "weeks",      "yard",    "yards",      "year",    "years",
};

const MathName* Find(std::span<const MathName> names, std::string_view name) {
  const auto found = std::find_if(names.begin(), names.end(),
                                  [&](const MathName& other) { return other.name == name; });
  return found == names.end() ? nullptr : &*found;
}

}  // namespace

const MathName* FindCommand(std::string_view name) { return Find(kCommands, name); }
const MathName* FindWord(std::string_view name) { return Find(kWords, name); }
const MathName* FindUnicode(std::string_view character) { return Find(kUnicode, character); }

std::string_view ScaleOfWord(std::string_view lower_case_word) {
  if (lower_case_word == "hundred") return "100";
  if (lower_case_word == "thousand") return "1000";
  if (lower_case_word == "million") return "1000000";
  if (lower_case_word == "billion") return "1000000000";
  return lower_case_word == "trillion" ? "1000000000000" : "";
}

bool IsUnitWord(std::string_view lower_case_word) {
  return std::find(std::begin(kUnits), std::end(kUnits), lower_case_word) != std::end(kUnits);
}

}  // namespace ebb
