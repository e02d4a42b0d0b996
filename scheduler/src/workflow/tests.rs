mod asks;
mod bed;
mod budgets;
mod cost;
mod kinds;
mod model;
mod random;
