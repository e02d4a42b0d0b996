mod bed;
mod kinds;
